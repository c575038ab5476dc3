// block_diag    y = matrices along its diagonal, 0 elsewhere; dx = dy where each matrix stood. No sums.
//
// Forward, a thread makes 16 bytes of a row of y: a row holds elements of one matrix, found by bisection of the tables
// of the launch. Backward, a thread moves an element of a matrix. Elements are words, whatever they mean.
#include <baracuda/vector.cuh>

namespace baracuda {

// The last matrix that begins at `at` or before: one without elements begins where its successor does.
template <class P> BARACUDA_D int holder(const P& p, i64 at) {
  int low = 0, high = p.count - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (p.first[middle] <= at) low = middle;
    else high = middle - 1;
  }
  return low;
}

template <int BYTES, class P> BARACUDA_D void block_diag(const P& p) {
  using W = Word<BYTES>;
  constexpr int width = 16 / BYTES;
  const i64 chunk = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (chunk >= p.rows * p.chunks) return;
  const i64 row = chunk / p.chunks, column = chunk % p.chunks * width;
  const int m = holder(p, row);
  const W* x = static_cast<const W*>(p.matrices[m]) + (row - p.first[m]) * p.strides[m][0];
  Vec<W, width> words;
#pragma unroll
  for (int k = 0; k < width; ++k) {
    const i64 j = column + k - p.place[m];
    words[k] = j >= 0 && j < p.extent[m] ? x[j * p.strides[m][1]] : W{};
  }
  W* y = static_cast<W*>(p.y) + (p.row + row) * p.step[0] + column * p.step[1];
  if (p.wide) store_streaming(y, words);
  else store_strided(y, p.step[1], words, p.columns - column);
}

template <int BYTES, class P> BARACUDA_D void block_diag_backward(const P& p) {
  using W = Word<BYTES>;
  const i64 at = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (at >= p.elements) return;
  const int m = holder(p, at);
  const i64 own = at - p.first[m], i = own / p.extent[m], j = own % p.extent[m];
  const W* dy = static_cast<const W*>(p.dy) + (p.row[m] + i) * p.step[0] + (p.place[m] + j) * p.step[1];
  static_cast<W*>(p.dmatrices[m])[i * p.strides[m][0] + j * p.strides[m][1]] = *dy;
}

}  // namespace baracuda
