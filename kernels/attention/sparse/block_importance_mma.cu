// block_importance_mma    block_importance.cuh on tensor cores.
//
// A block has WARPS queries of one key head, a warp each, with 16 query heads at a time as rows. All share the tiles of
// compressed keys, of which one is loaded while the one before is multiplied.
#include "attention/flash_mma.cuh"
#include "attention/sparse/block_importance.cuh"

namespace baracuda {

template <class T, int D, int KEYS, int WARPS, class P> BARACUDA_D void block_importance_mma(const P& p) {
  using namespace attention;
  constexpr int ROWS = 16, THREADS = WARPS * warp_size, TILE = KEYS * D;
  BARACUDA_DYNAMIC_SMEM(T, queries);           // [WARPS][ROWS][D]
  T* const keys = queries + WARPS * ROWS * D;  // [2][KEYS][D]
  __shared__ float sums[WARPS][KEYS];
  const int warp = static_cast<int>(threadIdx.x) / warp_size;
  const i64 tiles = (p.query_len + WARPS - 1) / WARPS, owner = blockIdx.x / tiles;
  const int first = static_cast<int>(tiles - 1 - blockIdx.x % tiles) * WARPS;  // the last queries first, as in Choice
  const i64 own = min<i64>(first + warp, p.query_len - 1), last = min<i64>(first + WARPS, p.query_len) - 1;
  const Choice choice = Choice::of<every_head>(p, owner * p.query_len + p.query_len - 1 - own);
  const BlockRow<float, P> blocks(p, choice, first + warp < p.query_len);
  const T* const k = static_cast<const T*>(p.k) + choice.b * p.stride[1][0] + choice.kv * p.stride[1][1];
  const T* const q = static_cast<const T*>(p.q) + choice.b * p.stride[0][0] + choice.head * p.stride[0][1];
  const float scale = static_cast<float>(p.scale);
  const tile::Reader<D, false> query(queries + warp * ROWS * D);
  const tile::Reader<D, true> key(keys);
  const int seen = blocks.seen(), end = BlockRow<float, P>::seen_at(p, last + p.query_start);
  const auto load = [&](int c0, int stage) {
    copy_rows<KEYS, D, THREADS>(keys + stage * TILE, k + c0 * p.stride[1][2], p.stride[1][2], end - c0, p.d_k,
                                p.wide & 2);
  };
#pragma unroll 1
  for (int head = 0; head < choice.heads && end > 0; head += ROWS) {
    const int heads = min(ROWS, choice.heads - head);
    const auto row = [&](int r) {  // rows of no head or query are those of the last
      const i64 query = min<i64>(first + r / ROWS, p.query_len - 1);
      return q + min(head + r % ROWS, choice.heads - 1) * p.stride[0][1] + query * p.stride[0][2];
    };
    copy_rows<WARPS * ROWS, D, THREADS>(queries, row, WARPS * ROWS, p.d_k, p.wide & 1);
    load(0, 0);
    cp_async_commit();
    float base[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int r = min(8 * half + lane_id() / 4, heads - 1);
      base[half] = replay_base(static_cast<const float*>(p.lse)[choice.state(p) + (head + r) * p.query_len]);
    }
    int stage = 0;
#pragma unroll 1
    for (int c0 = 0; c0 < end; c0 += KEYS, stage ^= 1) {
      cp_async_wait<0>();
      __syncthreads();  // this tile is loaded, and all have read the one before
      if (c0 + KEYS < end) load(c0 + KEYS, stage ^ 1);
      cp_async_commit();
      const int count = min(KEYS, seen - c0);
      if (count <= 0) continue;
      float s[1][KEYS / 8][4];
      score<T, D, 1, KEYS>(s, query, key, stage * TILE * static_cast<u32>(sizeof(T)));
#pragma unroll
      for (int n = 0; n < KEYS / 8; ++n) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float sum = 0.0f;
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const float weight = replayed_weight(math::fma(s[0][n][2 * half + e], scale, -base[half]));
            if (8 * half + lane_id() / 4 < heads) sum += weight;
          }
#pragma unroll
          for (int apart = 4; apart < warp_size; apart *= 2) sum += __shfl_xor_sync(full_warp, sum, apart);
          if (lane_id() < 4) sums[warp][8 * n + 2 * lane_id() + e] = sum;
        }
      }
      __syncwarp();
      blocks.add(sums[warp], c0, count);
    }
    __syncthreads();  // all have read the queries and the last tile
  }
  blocks.finish();
}

}  // namespace baracuda
