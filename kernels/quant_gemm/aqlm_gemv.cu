// aqlm_gemv   y[m, n] = x[m, :] · scale[n] W[n, :] + bias[n] of few rows of x by sums of vectors of codebooks.
//
// A warp has a row of W. A lane takes every 32nd piece of 16 bytes in turn, adds its products along k with fused
// multiply-adds in float, and lanes are added by halves: an order that k and the element alone fix.
#include <baracuda/math.cuh>
#include <baracuda/reduce.cuh>
#include "quantize/aqlm.cuh"

namespace baracuda {

template <class T, int N, int ROWS> BARACUDA_D void aqlm_gemv(const AqlmGemvParams& p) {
  constexpr int width = 16 / static_cast<int>(sizeof(T));  // of a piece, which is loaded N numbers at a time
  const i64 row = static_cast<i64>(blockIdx.x) * (blockDim.x / warp_size) + threadIdx.x / warp_size;
  if (row >= p.n) return;
  const float scale = aqlm_scale<T>(p, row);
  float acc[ROWS] = {};
#pragma unroll 1
  for (i64 piece = static_cast<i64>(lane_id()) * width; piece < p.k; piece += warp_size * width) {
#pragma unroll 1
    for (i64 first = piece; first < min<i64>(piece + width, p.k); first += N) {
      auto w = aqlm_values<T, N>(p, row, first);
#pragma unroll
      for (int i = 0; i < N; ++i) w[i] *= scale;
#pragma unroll
      for (int r = 0; r < ROWS; ++r) {
        if (r >= p.m) continue;
        const auto x = cast_vec<float>(load<N>(static_cast<const T*>(p.x) + r * p.x_step + first));
#pragma unroll
        for (int i = 0; i < N; ++i) acc[r] = math::fma(x[i], w[i], acc[r]);
      }
    }
  }
  const float bias = p.bias == nullptr ? 0.0f : to_acc(static_cast<const T*>(p.bias)[row * p.bias_step]);
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    const float sum = warp_reduce<Sum>(acc[r]);
    if (lane_id() == r && r < p.m)
      static_cast<T*>(p.y)[r * p.y_steps[0] + row * p.y_steps[1]] = from_acc<T>(sum + bias);
  }
}

}  // namespace baracuda
