// triangle   y = x on and above (or below) a diagonal of its last two axes, 0 elsewhere. Schedule map. No sums.
//
// The third operand of the map has no memory: its offset is column - row. What is not kept is not read.
#include <baracuda/map.cuh>

namespace baracuda {

template <class W, class P> struct Triangle {
  const P& p;
  W* y;
  const W* x;

  template <int V> struct Chunk {
    Vec<W, V> x;
  };
  BARACUDA_D bool keeps(i64 number) const { return p.upper ? number >= p.diagonal : number <= p.diagonal; }
  template <int V> BARACUDA_D Chunk<V> read(const MapPlace<V, 3>& place) const {
    Chunk<V> in;
#pragma unroll
    for (int k = 0; k < V; ++k) in.x[k] = W{};
    if (keeps(place.at[2]) || keeps(place.at[2] + (V - 1) * p.step)) in.x = place.load(x, 1);
    return in;
  }
  template <int V> BARACUDA_D void write(const MapPlace<V, 3>& place, const Chunk<V>& in, bool wanted) const {
    if (!wanted) return;
    Vec<W, V> out;
#pragma unroll
    for (int k = 0; k < V; ++k) out[k] = keeps(place.at[2] + k * p.step) ? in.x[k] : W{};
    place.store(y, 0, out);
  }
};

template <int BYTES, class L, class P> BARACUDA_D void triangle(const P& p) {
  using W = Word<BYTES>;
  map_chunks<L, 3>(p, Triangle<W, P>{p, static_cast<W*>(p.y), static_cast<const W*>(p.x)});
}

}  // namespace baracuda
