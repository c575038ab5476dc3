#pragma once
// block_gemm   where outputs of a product by stored weights stand, and what is done with a sum.
//
// x is [batch, m, k], the stored weights [batch, n, k], y [batch, m, n] in the element of x or, if `wide_out`, in float.
// P has m, n, k, x, bias and y, their steps along batch, m or n and the last axis, and the parts of `Stored`; k is a multiple of
// 8, and rows of x lie along memory and start 16-byte aligned.
#include "quantize/format.cuh"

namespace baracuda {

// The tile of ROWS of x by COLS of y of one block: numbered along the rows, then the columns, then the batch.
template <int ROWS, int COLS> struct BlockGemmTile {
  i64 m0, n0, batch;
  template <class P> BARACUDA_D BlockGemmTile(const P& p, u32 block) {
    const u32 tiles_m = div_up(p.m, i64(ROWS)), tiles_n = div_up(p.n, i64(COLS));
    m0 = i64(block % tiles_m) * ROWS;
    n0 = i64(block / tiles_m % tiles_n) * COLS;
    batch = block / tiles_m / tiles_n;
  }
};

// Writes sum + bias[n] to y[m, n], rounded once.
template <class T, class P> BARACUDA_D void put_sum(const P& p, i64 batch, i64 m, i64 n, float sum) {
  if (p.bias != nullptr) sum += to_acc(static_cast<const T*>(p.bias)[n * p.bias_step]);
  const i64 at = batch * p.y_steps[0] + m * p.y_steps[1] + n * p.y_steps[2];
  if (p.wide_out) static_cast<float*>(p.y)[at] = sum;
  else static_cast<T*>(p.y)[at] = from_acc<T>(sum);
}

}  // namespace baracuda
