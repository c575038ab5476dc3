// average_slopes  dx = dy w / z and dweights = dy (x - y) / z of arrays that were not broadcast, in one pass; dy, y and z
// broadcast along the axes of the average, w where it does. Schedule map.
//
// Everything is in acc_t<T>, rounded once to T. Of a gradient that is not wanted nothing is read but dy and z.
#include <baracuda/map.cuh>
#include <baracuda/math.cuh>

namespace baracuda {

template <class T> struct AverageSlopes {
  using A = acc_t<T>;
  const AverageSlopesParams& p;

  template <int V> struct Chunk {
    Vec<T, V> dy, weights, x, average;
    Vec<A, V> z;
  };
  template <int V> BARACUDA_D Chunk<V> read(const MapPlace<V, 7>& place) const {
    return {place.load(static_cast<const T*>(p.dy), 2), place.load(static_cast<const T*>(p.weights), 3),
            place.load(static_cast<const T*>(p.x), 4), place.load(static_cast<const T*>(p.average), 5),
            place.load(static_cast<const A*>(p.z), 6)};
  }
  template <int V> BARACUDA_D void write(const MapPlace<V, 7>& place, const Chunk<V>& in, bool wanted) const {
    if (!wanted) return;
    Vec<T, V> dx, dweights;
#pragma unroll
    for (int k = 0; k < V; ++k) {
      const A dy = to_acc(in.dy[k]), z = in.z[k];
      dx[k] = cast<T>(dy * to_acc(in.weights[k]) / z);
      dweights[k] = cast<T>(dy * (to_acc(in.x[k]) - to_acc(in.average[k])) / z);
    }
    if (p.dx != nullptr) place.store(static_cast<T*>(p.dx), 0, dx);
    if (p.dweights != nullptr) place.store(static_cast<T*>(p.dweights), 1, dweights);
  }
};

template <class T, class L> BARACUDA_D void average_slopes(const AverageSlopesParams& p) {
  map_chunks<L, 7>(p, AverageSlopes<T>{p});
}

}  // namespace baracuda
