// linear_sums    what losses of linear layers add over chunks of rows (`schedules/linear_loss.py`).
//
// linear_bias: sums of a gradient's columns, eight rows apart in order, those eight in order, chunks of rows in order.
// linear_round: sums in the accumulator's element, rounded.
#include "softmax/row_groups.cuh"

namespace baracuda {

// Sums of the columns of a chunk's gradient. 256 threads: 32 chunks of columns, eight rows at once.
template <class T> BARACUDA_D void linear_bias(const LinearBiasParams& p) {
  using A = acc_t<T>;
  constexpr int V = row_vec<T>, LANES = 8;
  __shared__ Vec<A, V> sums[LANES][32];
  const int across = static_cast<int>(threadIdx.x) % 32, lane = static_cast<int>(threadIdx.x) / 32;
  const i64 col = (static_cast<i64>(blockIdx.x) * 32 + across) * V;
  Vec<A, V> sum{};
  if (col < p.cols) {
#pragma unroll 4
    for (i64 row = lane; row < p.rows; row += LANES) {
      const auto g = to_acc(load<V>(static_cast<const T*>(p.grad) + row * p.grad_pitch + col));
#pragma unroll
      for (int k = 0; k < V; ++k) sum[k] += g[k];
    }
  }
  sums[lane][across] = sum;
  __syncthreads();
  if (lane != 0 || col >= p.cols) return;
#pragma unroll
  for (int k = 0; k < V; ++k) {
    if (col + k >= p.cols) break;
    A all = p.start ? A(0) : static_cast<const A*>(p.sums)[col + k];
#pragma unroll
    for (int l = 0; l < LANES; ++l) all += sums[l][across][k];
    if (p.end) static_cast<T*>(p.dbias)[(col + k) * p.dbias_step] = cast<T>(all);
    else static_cast<A*>(p.sums)[col + k] = all;
  }
}

// y[row, col] = sums[row, col] rounded; sums are dense rows with pitch.
template <class T, class A> BARACUDA_D void linear_round(const LinearRoundParams& p) {
  constexpr int V = row_vec<T>;
  const i64 chunks = div_up<i64>(p.cols, V), at = static_cast<i64>(blockIdx.x) * 256 + threadIdx.x;
  const i64 row = at / chunks, col = at % chunks * V;
  if (row >= p.rows) return;
  const auto sums = load_strided<A, V>(static_cast<const A*>(p.sums) + row * p.pitch + col, 1, p.cols - col);
  T* const y = static_cast<T*>(p.y) + row * p.strides[0] + col * p.strides[1];
  const auto out = from_acc<T>(sums);
  if (p.wide && p.cols - col >= V) store(y, out);
  else store_strided<T, V>(y, p.strides[1], out, p.cols - col);
}

}  // namespace baracuda
