// sdpa_block_sparse_backward_mma    the gradients of flash_sdpa_backward_mma over the set blocks of a pattern.
//
// flash_prepare and flash_gradients, here for dk and dv alone, are that file's. dq has a kernel of its own, as few
// tiles of keys would add to a tile of queries: a block has a tile of 16 WARPS queries and walks the tiles of keys that
// have a set block. A warp owns 16 rows; scores and their gradients stay in its registers, where ds is already the left
// operand of dq; it skips a tile that none of its rows sees. Values are loaded while ds is multiplied with the keys.
// The order of every sum is fixed by (element, D) and by the pattern.
#include "attention/dense/flash_sdpa_backward_mma.cu"
#include "attention/flash.cuh"

namespace baracuda {

// CUTS: blocks of the pattern may be smaller than a tile, or end within one.
template <class T, int D, int WARPS, int KEYS, bool CUTS, class P> BARACUDA_D void sdpa_block_sparse_dq(const P& p) {
  using namespace attention;
  constexpr int THREADS = WARPS * warp_size, ROWS = WARPS * 16;
  BARACUDA_DYNAMIC_SMEM(T, queries);    // [ROWS][D], at the end dq
  T* const grads = queries + ROWS * D;  // [ROWS][D]: dy
  T* const keys = grads + ROWS * D;     // [KEYS][D]
  T* const values = keys + KEYS * D;    // [KEYS][D]

  const Work work = Dense::find<ROWS>(p);
  const int q0 = static_cast<int>(work.first), row0 = static_cast<int>(threadIdx.x) / warp_size * 16;
  const int rows = inside<ROWS>(work.query_len, work.first);
  const Span<ROWS> span(p, work);
  const int key_len = span.key_len, last = span.end(rows);
  const BlockPattern<P, CUTS> pattern(p, work.b, work.h);
  Search search;
  const auto visit = [&](int k0) {
    return static_cast<int>(pattern.template visit<KEYS, false>(search, q0, ROWS, k0, last));
  };
  const auto load = [&](T* tile, const void* x, const i64(&stride)[3], int k0, int cols, bool wide) {
    tile::copy<KEYS, D, THREADS>(tile, rows_of<T>(x, stride, work.b, work.kv, k0), stride[2], key_len - k0, cols, wide);
  };
  const auto load_keys = [&](int k0) { load(keys, p.k, p.stride[1], k0, p.d_k, p.wide & 2); };
  const auto load_values = [&](int k0) { load(values, p.v, p.stride[2], k0, p.d_v, p.wide & 4); };

  int k0 = visit(span.template first<KEYS>());
  tile::copy<ROWS, D, THREADS>(queries, work.queries<T>(p.q, p.stride[0]), p.stride[0][2], rows, p.d_k, p.wide & 1);
  tile::copy<ROWS, D, THREADS>(grads, work.queries<T>(p.dy, p.stride[3]), p.stride[3][2], rows, p.d_v, p.wide & 8);
  if (k0 < last) {
    load_keys(k0);
    load_values(k0);
  }
  cp_async_commit();

  float2 stat[2];  // of rows g and g + 8: lse log2(e), or far_row(), and delta
  float base[2];   // the base of those that are far
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int r = row0 + 8 * half + lane_id() / 4;
    stat[half] = float2{numeric<float>::infinity(), 0.0f}, base[half] = 0.0f;
    if (r >= rows) continue;
    const float* const from = stats_of(p.stats, (work.b * p.num_heads + work.h) * p.padded + q0 + r);
    stat[half] = float2{from[0], from[2]};
    if (is_far(from[0])) base[half] = replay_base(static_cast<const float*>(p.lse)[work.stat + r]);
  }
  T* const mine = queries + row0 * D;
  const tile::Reader<D, false> query(mine), grad(grads + row0 * D), key(keys);
  const tile::Reader<D, true> key_row(keys), value_row(values);
  const float c = static_cast<float>(p.scale * 1.4426950408889634), scale = static_cast<float>(p.scale);
  float acc[1][D / 8][4];
#pragma unroll
  for (int n = 0; n < D / 8; ++n) acc[0][n][0] = acc[0][n][1] = acc[0][n][2] = acc[0][n][3] = 0.0f;

#pragma unroll 1
  while (k0 < last) {
    const int next = visit(k0 + KEYS), left = key_len - k0;
    u64 bits[2] = {};
    const bool cut = CUTS || span.template cuts<KEYS>(k0);
    bool busy = true;
    if (cut) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = row0 + 8 * half + lane_id() / 4;
        bits[half] = low_bits(min(left, span.high - k0 + row)) & ~low_bits(span.low - k0 + row);
        if constexpr (CUTS) bits[half] &= pattern.template keys_of<KEYS>(q0 + row, k0);
      }
      if constexpr (CUTS) busy = __any_sync(full_warp, (bits[0] | bits[1]) != 0);
    }
    cp_async_wait<0>();
    __syncthreads();  // this tile is loaded
    u32 ds16[1][KEYS / 16][4];
    if (busy) {
      float s[1][KEYS / 8][4], ds[1][KEYS / 8][4];
      score<T, D, 1, KEYS>(s, query, key_row, 0);
      score<T, D, 1, KEYS>(ds, grad, value_row, 0);
      if (is_far(stat[0].x) || is_far(stat[1].x)) {
#pragma unroll
        for (int n = 0; n < KEYS / 8; ++n) {
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            if (!is_far(stat[e / 2].x)) continue;
            s[0][n][e] = lowered(s[0][n][e], base[e / 2], scale);
            if (rounds_to_one<T>(exp2_fast(s[0][n][e] * c))) ds[0][n][e] = stat[e / 2].y;  // ds = 0 there
          }
        }
      }
#pragma unroll
      for (int n = 0; n < KEYS / 8; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float weight = exp2_fast(math::fma(s[0][n][e], c, -stat[e / 2].x));
          ds[0][n][e] = weight * (ds[0][n][e] - stat[e / 2].y);
        }
      }
      if (cut) keep(ds[0], 0, bits);
      to_fragments<T>(ds16[0], ds[0]);
    }
    __syncthreads();  // all have read the values
    if (next < last) load_values(next);
    if (busy) multiply<T, D, 1, KEYS>(acc, ds16, key, 0);
    __syncthreads();  // all have read the keys
    if (next < last) load_keys(next);
    cp_async_commit();
    k0 = next;
  }

  cp_async_wait<0>();
  __syncthreads();  // other threads' copies of q must not meet dq where no tile was visited
#pragma unroll
  for (int n = 0; n < D / 8; ++n) tile::put<D>(mine, 0, 8 * n, acc[0][n], scale, scale);
  __syncwarp();
  T* const dq = work.outputs<T>(p.dq, p.stride[4], row0);
  tile::copy_out<16, D, warp_size>(dq, p.stride[4][2], mine, lane_id(), rows - row0, p.d_k, p.wide & 16);
}

}  // namespace baracuda
