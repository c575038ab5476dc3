// flash_bias_gradients_mma    dmask, dslopes and dsinks on tensor cores: see flash_bias_gradients.cuh.
//
// Eight warps, each with 16 queries by 64 keys of a tile. q and k, then dy and v, come in chunks of 64 columns into two
// stages of swizzled shared memory: one is loaded while the other is multiplied, also across tiles. Products are added
// in the order of the columns, an element of a tile is summed over the steps in order.
#include "attention/flash.cuh"

#include "flash_bias_gradients.cuh"

namespace baracuda {

template <class T, class P> BARACUDA_D void flash_bias_gradient_mma(const P& p) {
  using namespace attention;
  constexpr int THREADS = 256, ROWS = 128, COLS = 64, STAGE = (ROWS + tile_keys) * COLS;
  BARACUDA_DYNAMIC_SMEM(T, stages);  // [2][ROWS + 64][COLS], at the end the sums
  const int row0 = static_cast<int>(threadIdx.x) / warp_size * 16, r0 = row0 + lane_id() / 4, c0 = lane_id() % 4 * 2;
  const Share share(p);
  Terms<2, float, false, P> terms(p, p.query_len, p.key_len, p.shift);
  const float sign = static_cast<float>(p.sign);
  const int first = max(1, (p.d_k + COLS - 1) / COLS), chunks = first + max(1, (p.d_v + COLS - 1) / COLS);

  const auto load = [&](const ScoreTile<ROWS>& at, int chunk, int stage) {
    const bool second = chunk >= first;
    const int col = (second ? chunk - first : chunk) * COLS, d = second ? p.d_v : p.d_k;
    const i64(&row_stride)[3] = p.stride[second ? 3 : 0];
    const i64(&key_stride)[3] = p.stride[second ? 2 : 1];
    const T* const rows = at.template queries<T>(second ? p.dy : p.q, row_stride) + col;
    const T* const keys = at.template keys<T>(second ? p.v : p.k, key_stride) + col;
    T* const to = stages + stage * STAGE;
    tile::copy<ROWS, COLS, THREADS>(to, rows, row_stride[2], at.rows, d - col, p.wide & (second ? 8 : 1));
    const bool wide = p.wide & (second ? 4 : 2);
    tile::copy<tile_keys, COLS, THREADS>(to + ROWS * COLS, keys, key_stride[2], at.left, d - col, wide);
  };
  float sum[1][8][4], x[1][8][4], weight[1][8][4];
  const auto each = [&](float(&tile)[1][8][4], const auto& f) {
#pragma unroll
    for (int n = 0; n < 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) f(tile[0][n][e], n, e);
    }
  };
  each(sum, [](float& s, int, int) { s = 0.0f; });

  const tile::Reader<COLS, false> left(stages + row0 * COLS);
  const tile::Reader<COLS, true> right(stages + ROWS * COLS);
  i64 step = share.step;
  ScoreTile<ROWS> next;
  bool more = next.find(p, share, step);
  if (more) load(next, 0, 0);
  cp_async_commit();
  int stage = 0;
#pragma unroll 1
  while (more) {
    const ScoreTile<ROWS> at = next;
    ++step;
    more = next.find(p, share, step);
    terms.enter(at.b, at.h);
    const int i0 = at.q0 + r0, j0 = at.k0 + c0;
    RowBase<float> base[2];
    float delta[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const bool there = r0 + 8 * half < at.rows;
      base[half] = there ? RowBase<float>::of(p, at.row(p) + r0 + 8 * half) : RowBase<float>{};
      delta[half] = there ? static_cast<const float*>(p.delta)[at.row(p) + r0 + 8 * half] : 0.0f;
    }
#pragma unroll 1
    for (int chunk = 0; chunk < chunks; ++chunk, stage ^= 1) {
      cp_async_wait<0>();
      __syncthreads();  // this chunk is loaded, and all have read the one before
      if (chunk + 1 < chunks) load(at, chunk + 1, stage ^ 1);
      else if (more) load(next, 0, stage ^ 1);
      cp_async_commit();
      if (chunk == 0) each(x, [](float& s, int, int) { s = 0.0f; });
      const u32 offset = stage * STAGE * static_cast<u32>(sizeof(T));
      add_scores<T, COLS, 1, tile_keys>(x, left, right, offset, offset);
      if (chunk + 1 != first) continue;
      each(x, [&](float& s, int, int) { s *= sign; });
      const auto scores = [&](const auto& f) {
        each(x, [&](float& s, int n, int e) { f(s, e / 2 * 8, 8 * n + e % 2); });
      };
      terms.add_to(scores, i0, j0, at.whole());
      const bool masked = terms.masked(), drops = terms.drops(), spares = p.spares;
      each(x, [&](float& s, int n, int e) {
        const auto& row = base[e / 2];
        const float above = s - row.base;
        const bool resummed = is_resummed(p, row.base), far = is_far_base(row.base);
        // of a huge product the key's weight may be lost for 1, which makes ds 0 as well
        const float found = replayed_weight(resummed ? above_sum(above, row.rest, 0.0f) : above);
        weight[0][n][e] = masked && s == -numeric<float>::infinity()            ? -0.0f
                          : rounds_to_one<T>(found) && spares && (drops || far) ? 0.0f
                                                                                : found;
        s = 0.0f;
      });
      if (at.cut() || at.rows < ROWS) {
        each(weight, [&](float& w, int n, int e) {
          const int r = r0 + e / 2 * 8;
          if (r >= at.rows || !at.sees(r, c0 + 8 * n + e % 2)) w = -0.0f;
        });
      }
      if (p.distance) {
        each(weight, [&](float& w, int n, int e) { w = at_distance(p, w, i0 + e / 2 * 8, j0 + 8 * n + e % 2); });
      }
    }
    if (terms.drops()) {
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        const u32 kept = terms.kept_by_rows(i0, j0 + 8 * n);
#pragma unroll
        for (int e = 0; e < 4; ++e) x[0][n][e] *= kept >> e & 1 ? terms.again : 0.0f;
      }
    }
    each(x, [&](float& s, int n, int e) { add_ds(sum[0][n][e], weight[0][n][e], s, delta[e / 2]); });
  }
  float* const sums = reinterpret_cast<float*>(stages);
  __syncthreads();  // all have multiplied
  each(sum, [&](float& s, int n, int e) { sums[(r0 + e / 2 * 8) * score_pitch<float> + c0 + 8 * n + e % 2] = s; });
  __syncthreads();
  put_share<ROWS, THREADS>(p, share, sums);
}

}  // namespace baracuda
