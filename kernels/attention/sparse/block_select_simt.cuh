#pragma once
// block_select_simt    what the kernels without tensor cores share: four warps a block, each on its own; a lane has a row or
//                      key of 32 for products along columns, each one chain of fma, and columns lane, lane + 32, … of sums.
#include "attention/sparse/selected.cuh"
#include <baracuda/reduce.cuh>

namespace baracuda {
namespace attention {

constexpr int select_warps = 4;

template <class A, class T> BARACUDA_D void load_row(A* to, const T* from, int cols) {
  for (int d = lane_id(); d < cols; d += warp_size) to[d] = to_acc(from[d]);
}
template <class X, class T> BARACUDA_D acc_t<T> product(const X* x, const T* y, int cols) {
  acc_t<T> sum = 0;
#pragma unroll 4
  for (int d = 0; d < cols; ++d) sum = math::fma(to_acc(x[d]), to_acc(y[d]), sum);
  return sum;
}
// acc += weight row
template <int D, class A, class T> BARACUDA_D void add_row(A (&acc)[D / warp_size], A weight, const T* row, int cols) {
#pragma unroll
  for (int n = 0; n < D / warp_size; ++n) {
    const int column = lane_id() + n * warp_size;
    if (column < cols) acc[n] = math::fma(weight, to_acc(row[column]), acc[n]);
  }
}
template <int D, class A, class T> BARACUDA_D void put_row(T* row, const A (&acc)[D / warp_size], A factor, int cols) {
#pragma unroll
  for (int n = 0; n < D / warp_size; ++n) {
    const int column = lane_id() + n * warp_size;
    if (column < cols) row[column] = from_acc<T>(acc[n] * factor);
  }
}

}  // namespace attention
}  // namespace baracuda
