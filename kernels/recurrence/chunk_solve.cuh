#pragma once
// chunk_solve    the delta rule's triangular system in a chunk of 64 steps: its inverse in float32 by substitution in blocks
//                of 16 rows, and the inverse as a sum of two matrices of 16 bits.
#include "recurrence/chunk_products.cuh"

namespace baracuda {
namespace recurrence {
namespace chunked {

// r = (1 + m)^-1 r for 64 columns, m strictly lower triangular. All threads of the block call it.
BARACUDA_D void solve(float* r, const float* m) {
  constexpr int parts = crew / width;
  const int column = static_cast<int>(threadIdx.x) % width, part = static_cast<int>(threadIdx.x) / width;
#pragma unroll 1
  for (int first = 0; first < chunk; first += solved_rows) {
    float x[solved_rows];
#pragma unroll
    for (int i = 0; i < solved_rows; ++i) {
      x[i] = r[(first + i) * width + column];
#pragma unroll
      for (int j = 0; j < i; ++j) x[i] = math::fma(-m[(first + i) * chunk + first + j], x[j], x[i]);
    }
    __syncthreads();  // all parts have read the rows
    if (part == 0) {
#pragma unroll
      for (int i = 0; i < solved_rows; ++i) r[(first + i) * width + column] = x[i];
    }
#pragma unroll 2
    for (int row = first + solved_rows + part; row < chunk; row += parts) {
      float y = r[row * width + column];
#pragma unroll
      for (int j = 0; j < solved_rows; j += 4) {
        const Vec<float, 4> four = load<4>(m + row * chunk + first + j);
#pragma unroll
        for (int e = 0; e < 4; ++e) y = math::fma(-four[e], x[j + e], y);
      }
      r[row * width + column] = y;
    }
    __syncthreads();
  }
}

// high + low = r diag(factor), each of 16 bits.
template <class T, class F> BARACUDA_D void split_columns(T* high, T* low, const float* r, F&& factor) {
  for (int i = static_cast<int>(threadIdx.x); i < area; i += crew) {
    const int row = i / width, col = i % width, at = tile::at<64>(row, col / 8) + col % 8;
    const float x = r[i] * factor(col);
    high[at] = from_acc<T>(x);
    low[at] = from_acc<T>(x - to_acc(high[at]));
  }
}

}  // namespace chunked
}  // namespace recurrence
}  // namespace baracuda
