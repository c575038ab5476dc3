// recurrence_sum    out[row][head][d] = sum over the state heads of a group, and over tiles, of part[tile][row][state head][d].
//
// x: the operand, where it was normalised: then the gradient goes through that, too. Schedule: a warp has a row of a head;
// it adds heads and, of each, tiles in order.
#include "recurrence/recurrence.cuh"

namespace baracuda {

template <class T, class O, class P> BARACUDA_D void recurrence_sum(const P& p) {
  using A = acc_t<T>;
  const i64 warp = (static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x) / warp_size;
  if (warp >= p.batch * p.rows * p.heads) return;
  const i64 head = warp % p.heads, row = warp / p.heads % p.rows, batch = warp / p.heads / p.rows;
  const i64 group = p.state_heads / p.heads, all = p.batch * p.rows * p.state_heads * p.width;
  const A* const part = static_cast<const A*>(p.part) + (warp * group) * p.width;
  const auto sum = [&](i64 d) {
    A x = A(0);
    for (i64 member = 0; member < group; ++member)
      for (i64 tile = 0; tile < p.tiles; ++tile) x += part[tile * all + member * p.width + d];
    return x;
  };
  O* const to = recurrence::row_at<O>(p.out, p.out_stride, batch, row, head);
  if (p.x == nullptr) {
    for (i64 d = lane_id(); d < p.width; d += warp_size) to[d * p.element_stride] = from_acc<O>(sum(d));
    return;
  }
  const T* const x = recurrence::row_at<T>(p.x, p.x_stride, batch, row, head);
  A squares = A(0), product = A(0);
  for (i64 d = lane_id(); d < p.width; d += warp_size) {
    const A value = to_acc(x[d]);
    squares = math::fma(value, value, squares);
    product = math::fma(value, sum(d), product);
  }
#pragma unroll
  for (int lane = 1; lane < warp_size; lane *= 2) {
    squares += __shfl_xor_sync(full_warp, squares, lane);
    product += __shfl_xor_sync(full_warp, product, lane);
  }
  const A factor = A(1) / math::sqrt(squares + static_cast<A>(p.eps)), share = product * factor * factor;
  for (i64 d = lane_id(); d < p.width; d += warp_size)
    to[d * p.element_stride] = from_acc<O>(factor * (sum(d) - to_acc(x[d]) * share));
}

}  // namespace baracuda
