// trace_backward  dx = dy on a diagonal of two axes, 0 elsewhere: one pass of stores. Schedule map, strided.
//
// The third operand is no memory: its offset is how far right of the diagonal an element lies. Only chunks that the
// diagonal passes read dy.
#include <baracuda/map.cuh>

namespace baracuda {

template <class T, class L> BARACUDA_D void trace_backward(const TraceBackwardParams& p) {
  constexpr int V = L::vec, U = L::unroll;
  enum { at_dx, at_dy, at_place, operands };
  const i64 first = static_cast<i64>(blockIdx.x) * (map_threads * U) + threadIdx.x;
  if (first >= p.chunks) return;
  i64 c[U], at[U][operands];
#pragma unroll
  for (int u = 0; u < U; ++u) c[u] = min<i64>(first + u * map_threads, p.chunks - 1);
  map_offsets(p, c, at);
  const i64 step = V > 1 ? p.strides[at_place][p.rank - 1] / V : 0;  // from an element of a chunk to the next
#pragma unroll
  for (int u = 0; u < U; ++u) {
    if (first + u * map_threads >= p.chunks) break;
    const i64 left = p.diagonal - at[u][at_place];
    Vec<T, V> dx;
#pragma unroll
    for (int k = 0; k < V; ++k) dx[k] = T(0.0f);
    if (left == 0 || (left > -V && left < V)) {  // steps are -1, 0 and 1 where there are any
      const T* const dy = static_cast<const T*>(p.dy) + at[u][at_dy];
      const bool moves = V > 1 && !(p.splat >> at_dy & 1);
#pragma unroll
      for (int k = 0; k < V; ++k) {
        if (left == k * step) dx[k] = dy[moves ? k : 0];
      }
    }
    store(static_cast<T*>(p.dx) + at[u][at_dx], dx);
  }
}

}  // namespace baracuda
