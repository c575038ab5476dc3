// quantized_sdpa_wgmma    y[i] = out_scale v_scale sum_j softmax_j(s[i,j]) v[j];   s = scale q_scale[i] k_scale[j] q[i] k[j]
//   of codes q and k, on wgmma: products q k of bytes, exact for int8, weights in registers times values of 16 bits.
//
// The schedule of flash_sdpa_wgmma: a warpgroup owns 64 queries of the block's tile, and the scores of a tile of keys are
// started before the product with the values of the tile before, so that its softmax overlaps that product. Rows of codes
// have 128 bytes in shared memory, of which D are multiplied. Keys and values have two stages each; the values of a tile
// are loaded with the keys of the next. Values of e4m3 are widened to f16 by a launch before. The order of every sum is
// fixed by the elements, D and where tiles start.
#include "attention/quantized/quantized.cuh"
#include "attention/flash_wgmma.cuh"
#include <baracuda/wgmma_int8.cuh>
#include <baracuda/wgmma_wide.cuh>

namespace baracuda {
namespace attention {

constexpr int code_pairs = 64;  // of a row in shared memory

// Starts s = q kᵀ of codes and commits it.
template <class C, int D, class S> BARACUDA_D void start_codes(S& s, u64 query, u64 key) {
#pragma unroll
  for (int d = 0; d < D; d += 32) {
    if constexpr (is_fp8<C>) wgmma_along<C>(s, query + d / 16, key + d / 16, d != 0);
    else wgmma_int8<C, C>(s, query + d / 16, key + d / 16, d != 0);
  }
  wgmma_commit();
}

}  // namespace attention

// C: of codes. V: of values. Y: of outputs.
template <class C, class V, class Y, int D, int WARPS, int KEYS, class P>
BARACUDA_D void quantized_sdpa_wgmma(const P& p) {
  using namespace attention;
  using T = value_t<V>;
  using S = conditional<is_fp8<C>, float, int>;
  constexpr int THREADS = WARPS * warp_size, ROWS = WARPS * 16, CODES = KEYS * code_pairs;
  BARACUDA_DYNAMIC_SMEM(u16, shared);
  u16* const queries = shared + (1024 - smem_address(shared) % 1024) % 1024 / 2;  // [ROWS], then outputs from here on
  u16* const keys = queries + ROWS * code_pairs;                                  // [2][KEYS]
  T* const values = reinterpret_cast<T*>(keys + 2 * CODES);                       // [2] tiles of panels

  const Work work = Dense::find<ROWS>(p);
  const u8* const q = work.template queries<u8>(p.q, p.stride[0]);
  const u8* const k = work.template keys<u8>(p.k, p.stride[1]);
  const T* const v = work.template keys<T>(is_fp8<V> ? p.wide_v : p.v, p.stride[2]);
  const int row_count = inside<ROWS>(work.query_len, work.first);
  const int row0 = static_cast<int>(threadIdx.x) / warp_size * 16;
  const Span<ROWS> span(p, work);
  const int last = span.end(row_count);  // of the keys that the block sees
  const auto load_keys = [&](int k0, int stage) {
    copy_codes<KEYS, code_pairs, THREADS>(keys + stage * CODES, k + k0 * p.stride[1][2], p.stride[1][2],
                                          span.key_len - k0, p.d_k, p.wide & 2);
  };
  const auto load_values = [&](int k0, int stage) {
    tile::copy_panels<KEYS, D, THREADS>(values + stage * KEYS * D, v + k0 * p.stride[2][2], p.stride[2][2],
                                        span.key_len - k0, p.d_v, p.wide & 4);
  };
  const auto arrive = [] {  // all loads are complete, and all have read what is loaded over next
    cp_async_wait<0>();
    wgmma_publish();
    __syncthreads();
  };

  // Copy the queries and the first keys.
  copy_codes<ROWS, code_pairs, THREADS>(queries, q, p.stride[0][2], row_count, p.d_k, p.wide & 1);
  if (last > 0) load_keys(0, 0);
  cp_async_commit();
  float scales[1][2];
  scale_rows(scales, p, work, row0);

  const GroupProducts<T, D, ROWS, KEYS> products(values, values, values, 0);
  const u64 query = wgmma_operand(queries) + warpgroup() * (64 * 128 >> 4), key = wgmma_operand(keys);
  Rows<T, D, 1, KEYS> rows;
  S codes[1][KEYS / 8][4];
  const auto start_scores = [&](int stage) { start_codes<C, D>(codes[0], query, key + stage * (KEYS * 128 >> 4)); };
  const auto softmax = [&](int k0, float by_keys) {
    scale_scores(rows, codes, scales, by_keys);
    if (span.template cuts<KEYS>(k0)) rows.mask(span.key_len - k0, span.low - k0 + row0, span.high - k0 + row0);
    rows.template weigh<Scores::exact>(1.0f);
  };
  const auto hold_outputs = [&] {
    hold(rows.weights[0]);
    hold(rows.acc[0]);
  };

  if (last > 0) {
    // The first scores.
    arrive();
    load_values(0, 0);
    if (KEYS < last) load_keys(KEYS, 1);
    cp_async_commit();
    wgmma_fence();
    start_scores(0);
    wgmma_wait<0>();
    hold(codes[0]);
    softmax(0, key_scale(p, work.b, work.kv, 0));
    rows.pack();

    int stage = 1;
#pragma unroll 1
    for (int k0 = KEYS; k0 < last; k0 += KEYS, stage ^= 1) {
      arrive();
      load_values(k0, stage);
      if (k0 + KEYS < last) load_keys(k0 + KEYS, stage ^ 1);
      cp_async_commit();
      const float by_keys = key_scale(p, work.b, work.kv, k0);
      hold_outputs();
      wgmma_fence();
      start_scores(stage);
      products.start_outputs(rows.acc[0], rows.weights[0], stage ^ 1);
      wgmma_wait<1>();
      hold(codes[0]);
      softmax(k0, by_keys);
      // Wait for the outputs, and rescale them: behind a branch, as the assembler of 13.0 moves waits up.
      hold(rows.scores[0]);
      if (rows.moved) {
        wgmma_wait<0>();
        hold(rows.acc[0]);
        rows.rescale();
      }
      wgmma_wait<0>();
      hold_outputs();
      rows.pack();
    }

    // The last outputs.
    arrive();
    hold_outputs();
    wgmma_fence();
    products.start_outputs(rows.acc[0], rows.weights[0], stage ^ 1);
    wgmma_wait<0>();
    hold(rows.acc[0]);
  }
  cp_async_wait<0>();
  __syncthreads();  // all have read what the outputs are written over
  store_rows<D, 1>(p, rows, work, row0, row_count, reinterpret_cast<Y*>(queries) + row0 * D);
}

}  // namespace baracuda
