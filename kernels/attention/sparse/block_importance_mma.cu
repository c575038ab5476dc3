// block_importance_mma    block_importance.cuh on tensor cores: 16 query heads at a time.
#include "attention/flash_mma.cuh"
#include "attention/sparse/block_importance.cuh"

namespace baracuda {

template <class T, int D, int KEYS, class P> BARACUDA_D void block_importance_mma(const P& p) {
  using namespace attention;
  constexpr int ROWS = 16;
  BARACUDA_DYNAMIC_SMEM(T, queries);   // [ROWS][D]
  T* const keys = queries + ROWS * D;  // [KEYS][D]
  __shared__ float sums[KEYS];
  const Choice choice = Choice::of<every_head>(p, blockIdx.x);
  const BlockRow<float, P> blocks(p, choice);
  const T* const k = static_cast<const T*>(p.k) + choice.b * p.stride[1][0] + choice.kv * p.stride[1][1];
  const float scale = static_cast<float>(p.scale);
  const tile::Reader<D, false> query(queries);
  const tile::Reader<D, true> key(keys);
  const int seen = blocks.seen();
#pragma unroll 1
  for (int head = 0; head < choice.heads; head += ROWS) {
    const int heads = min(ROWS, choice.heads - head);
    const T* const q = choice.row<T>(p.q, p.stride[0]) + head * p.stride[0][1];
    copy_rows<ROWS, D, warp_size>(queries, q, p.stride[0][1], heads, p.d_k, p.wide & 1);
    float base[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int r = 8 * half + lane_id() / 4;
      base[half] = numeric<float>::infinity();  // rows of no head have no weight
      if (r < heads)
        base[half] = replay_base(static_cast<const float*>(p.lse)[choice.state(p) + (head + r) * p.query_len]);
    }
#pragma unroll 1
    for (int c0 = 0; c0 < seen; c0 += KEYS) {
      const int count = min(KEYS, seen - c0);
      copy_rows<KEYS, D, warp_size>(keys, k + c0 * p.stride[1][2], p.stride[1][2], count, p.d_k, p.wide & 2);
      cp_async_commit();
      cp_async_wait<0>();
      __syncwarp();
      float s[1][KEYS / 8][4];
      score<T, D, 1, KEYS>(s, query, key, 0);
#pragma unroll
      for (int n = 0; n < KEYS / 8; ++n) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float sum = 0.0f;
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            if (8 * half + lane_id() / 4 < heads)
              sum += replayed_weight(math::fma(s[0][n][2 * half + e], scale, -base[half]));
          }
#pragma unroll
          for (int apart = 4; apart < warp_size; apart *= 2) sum += __shfl_xor_sync(full_warp, sum, apart);
          if (lane_id() < 4) sums[8 * n + 2 * lane_id() + e] = sum;
        }
      }
      __syncwarp();
      blocks.add(sums, c0, count);
    }
  }
  blocks.finish();
}

}  // namespace baracuda
