// quantized_sdpa_mma    y[i] = out_scale v_scale sum_j softmax_j(s[i,j]) v[j];   s = scale q_scale[i] k_scale[j] q[i] k[j]
//   of codes q and k, on mma.sync: products q k of bytes (m16n8k32), exact for int8, weights times values of 16 bits.
//
// The schedule of flash_sdpa_mma with two stages: a warp owns 16 MT rows of a block's tile of queries, tiles of keys and
// values come by cp.async a tile ahead, and scores become weights in registers. Scores are in powers of 2 once they are
// scaled, so that a weight is exp2(score - base), from a difference of scores however large they are. Values of e4m3 are
// widened to f16 by a launch before. The order of every sum is fixed by the elements, D and where tiles start.
#include "attention/quantized/quantized.cuh"
#include <baracuda/mma_fp8.cuh>
#include <baracuda/mma_int8.cuh>

namespace baracuda {
namespace attention {

// s = q kᵀ of codes; the keys stand `at` bytes behind those of the reader.
template <class C, int PAIRS, int MT, int KEYS, class S>
BARACUDA_D void multiply_codes(S (&s)[MT][KEYS / 8][4], const tile::Reader<PAIRS, false>& query,
                               const tile::Reader<PAIRS, true>& key, u32 at) {
#pragma unroll
  for (int m = 0; m < MT; ++m) {
#pragma unroll
    for (int n = 0; n < KEYS / 8; ++n) s[m][n][0] = s[m][n][1] = s[m][n][2] = s[m][n][3] = S(0);
  }
  const auto add = [](S(&sum)[4], const u32(&x)[4], const u32(&y)[2]) {
    if constexpr (is_fp8<C>) mma_m16n8k32<C>(sum, x, y);
    else mma_int8<C, C>(sum, x, y);
  };
#pragma unroll
  for (int d = 0; d < PAIRS; d += 16) {
    u32 x[MT][4];
#pragma unroll
    for (int m = 0; m < MT; ++m) query.read(x[m], 16 * m, d);
#pragma unroll
    for (int n = 0; n < KEYS / 8; n += 2) {
      u32 y[4];
      key.read(y, 8 * n, d, at);
#pragma unroll
      for (int m = 0; m < MT; ++m) {
        add(s[m][n], x[m], {y[0], y[1]});
        add(s[m][n + 1], x[m], {y[2], y[3]});
      }
    }
  }
}

}  // namespace attention

// C: of codes. V: of values. Y: of outputs.
template <class C, class V, class Y, int D, int WARPS, int MT, int KEYS, class P>
BARACUDA_D void quantized_sdpa_mma(const P& p) {
  using namespace attention;
  using T = value_t<V>;
  using S = conditional<is_fp8<C>, float, int>;
  constexpr int THREADS = WARPS * warp_size, ROWS = WARPS * MT * 16, PAIRS = D / 2;
  BARACUDA_DYNAMIC_SMEM(u16, queries);       // [ROWS][PAIRS], at the end the outputs from here on
  u16* const keys = queries + ROWS * PAIRS;  // [2][KEYS][PAIRS]
  T* const values = reinterpret_cast<T*>(keys + 2 * KEYS * PAIRS);  // [2][KEYS][D]

  const Work work = Dense::find<ROWS>(p);
  const u8* const q = work.template queries<u8>(p.q, p.stride[0]);
  const u8* const k = work.template keys<u8>(p.k, p.stride[1]);
  const T* const v = work.template keys<T>(is_fp8<V> ? p.wide_v : p.v, p.stride[2]);
  const int row_count = inside<ROWS>(work.query_len, work.first);
  const int row0 = static_cast<int>(threadIdx.x) / warp_size * MT * 16;
  const Span<ROWS> span(p, work);
  // end of the keys that this warp sees, and that the block sees
  const int own_end = span.end(min(row_count, row0 + 16 * MT)), last = span.end(row_count);
  const auto load = [&](int k0, int stage) {
    copy_codes<KEYS, PAIRS, THREADS>(keys + stage * KEYS * PAIRS, k + k0 * p.stride[1][2], p.stride[1][2],
                                     span.key_len - k0, p.d_k, p.wide & 2);
    tile::copy<KEYS, D, THREADS>(values + stage * KEYS * D, v + k0 * p.stride[2][2], p.stride[2][2], span.key_len - k0,
                                 p.d_v, p.wide & 4);
  };

  // Copy the queries and the first tile.
  copy_codes<ROWS, PAIRS, THREADS>(queries, q, p.stride[0][2], row_count, p.d_k, p.wide & 1);
  if (last > 0) load(0, 0);
  cp_async_commit();
  float scales[MT][2];
  scale_rows(scales, p, work, row0);

  const tile::Reader<PAIRS, false> query(queries + row0 * PAIRS);
  const tile::Reader<PAIRS, true> key(keys);
  const tile::Reader<D, false> value(values);
  Rows<T, D, MT, KEYS> rows;
  int stage = 0;
#pragma unroll 1
  for (int k0 = 0; k0 < last; k0 += KEYS, stage ^= 1) {
    cp_async_wait<0>();
    __syncthreads();  // this tile is loaded, and all have read the one before
    if (k0 + KEYS < last) load(k0 + KEYS, stage ^ 1);
    cp_async_commit();
    if (k0 >= own_end) continue;
    const float by_keys = key_scale(p, work.b, work.kv, k0);
    S products[MT][KEYS / 8][4];
    multiply_codes<C, PAIRS, MT, KEYS>(products, query, key, stage * (2 * KEYS * PAIRS));
    scale_scores(rows, products, scales, by_keys);
    if (span.template cuts<KEYS>(k0)) rows.mask(span.key_len - k0, span.low - k0 + row0, span.high - k0 + row0);
    rows.template weigh<Scores::exact>(1.0f);
    rows.rescale();
    rows.pack();
    multiply<T, D, MT, KEYS>(rows.acc, rows.weights, value, stage * (2 * KEYS * D));
  }
  cp_async_wait<0>();
  __syncthreads();  // all have read what the outputs are written over
  store_rows<D, MT>(p, rows, work, row0, row_count, reinterpret_cast<Y*>(queries) + row0 * D);
}

}  // namespace baracuda
