#pragma once
// cast_tile   PARTS matrices beside each other as fp8 by a given scale, their transposes below each other, and the largest
// size of all numbers: tiles of transpose_tile.cuh, whose codes change threads in shared memory.
//
// P has the fields of transpose_tile.cuh, `code`, `amax`, `scale`, and of several parts `y_part`, the step from one to the
// next in y. A maximum depends on no order.
#include "quantize/amax.cuh"
#include "quantize/transpose_tile.cuh"

namespace baracuda {

namespace transposing {

// values(v, row, column, there) makes a thread's piece of every part, zeros where `there` is false.
template <bool WIDE, int PARTS, class P, class F> BARACUDA_D void cast_tiles(const P& p, const F& values) {
  __shared__ u8 tile[PARTS][side][side + 4];
  const i64 block = static_cast<i64>(blockIdx.y) * gridDim.x + blockIdx.x, across = div_up(p.cols, side);
  const i64 top = block / across * side, left = block % across * side;
  if (top >= p.rows) return;
  const int line = static_cast<int>(threadIdx.x) / 4, from = static_cast<int>(threadIdx.x) % 4 * each;
  const quantize::Coder coder(p.code);
  const float scale = static_cast<float>(p.scale());
  i64 part = 0;
  if constexpr (PARTS > 1) part = p.y_part;

  const bool there = top + line < p.rows && left + from < p.cols;
  Vec<float, each> v[PARTS];
  values(v, top + line, left + from, there);
  float most = 0.0f;
#pragma unroll
  for (int n = 0; n < PARTS; ++n) {
    const float own = quantize::most_of(v[n], WIDE ? each : p.cols - left - from);
    most = math::maximum(most, own);
#pragma unroll
    for (int k = 0; k < each; ++k) v[n][k] *= scale;
    const Vec<u8, each> codes = quantize::codes_of(v[n], coder, math::isfinite(own) && math::isfinite(scale));
#pragma unroll
    for (int k = 0; k < each; ++k) tile[n][line][from + k] = codes[k];
    if (there) put_row<WIDE>(p, top + line, left + from, codes, n * part);
  }
  quantize::raise<threads>(static_cast<float*>(p.amax), most);
  __syncthreads();

#pragma unroll
  for (int n = 0; n < PARTS; ++n) {
    Vec<u8, each> codes;
#pragma unroll
    for (int k = 0; k < each; ++k) codes[k] = tile[n][from + k][line];
    if (top + from < p.rows && left + line < p.cols)
      put_column<WIDE>(p, top + from, left + line, codes, n * p.cols * p.yt_column);
  }
}

}  // namespace transposing

}  // namespace baracuda
