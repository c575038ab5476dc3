// block_diag    y = matrices along its diagonal, 0 elsewhere; dx = dy where each matrix stood. No sums.
//
// Forward, a thread makes four pieces of 16 bytes of a row of y: a row holds elements of one matrix, found once by
// bisection of the tables of the launch. Backward, a thread moves an element of a matrix of any strides; matrices whose
// rows are dense are parts of layout/concat.cu. Elements are words, whatever they mean.
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

// A row belongs to 2^lanes threads of each of `segments` blocks, a thread's chunks lie 2^lanes apart.
template <int BYTES, class P> BARACUDA_D void block_diag(const P& p) {
  using W = Word<BYTES>;
  constexpr int width = 16 / BYTES, in_flight = block_diag_in_flight;
  const u32 group = blockIdx.x / static_cast<u32>(p.segments), segment = blockIdx.x - group * p.segments;
  const i64 row = static_cast<i64>(group) * (blockDim.x >> p.lanes) + (threadIdx.x >> p.lanes);
  if (row >= p.rows) return;
  const int m = holder(p, row);
  const i64 place = p.place[m], extent = p.extent[m], step = p.strides[m][1];
  const W* x = static_cast<const W*>(p.matrices[m]) + (row - p.first[m]) * p.strides[m][0];
  const bool wide = step == 1 && (reinterpret_cast<u64>(x) - static_cast<u64>(place * BYTES)) % 16 == 0;
  const i64 first = (static_cast<i64>(segment) * in_flight << p.lanes) + (threadIdx.x & ((1u << p.lanes) - 1));
  Vec<W, width> words[in_flight];
#pragma unroll
  for (int u = 0; u < in_flight; ++u) {
    const i64 from = (first + (static_cast<i64>(u) << p.lanes)) * width - place;
#pragma unroll
    for (int k = 0; k < width; ++k) words[u][k] = W{};
    if (from + width <= 0 || from >= extent) continue;
    if (wide && from >= 0 && from + width <= extent) {
      words[u] = load<width>(x + from);
      continue;
    }
#pragma unroll
    for (int k = 0; k < width; ++k) {
      if (from + k >= 0 && from + k < extent) words[u][k] = x[(from + k) * step];
    }
  }
#pragma unroll
  for (int u = 0; u < in_flight; ++u) {
    const i64 chunk = first + (static_cast<i64>(u) << p.lanes), column = chunk * width;
    if (chunk >= p.chunks) break;
    W* y = static_cast<W*>(p.y) + (p.row + row) * p.step[0] + column * p.step[1];
    if (p.wide) store_streaming(y, words[u]);
    else store_strided(y, p.step[1], words[u], p.columns - column);
  }
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
