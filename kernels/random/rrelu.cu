// rrelu      y = x where x > 0, else x times a slope that is uniform in [lower, upper), drawn for each element; and its
// gradient, dy in place of the factor x. Schedule map.
//
// Draw n is element n of the Philox stream (philox.cuh), n the row-major number of the element: the offset in an operand
// without memory. So the gradient draws the same slopes again.
#include <baracuda/math.cuh>
#include <baracuda/map.cuh>
#include "random/draws.cuh"

namespace baracuda {

template <class T> struct RreluOp {
  using A = acc_t<T>;
  const RreluParams& p;
  u64 seed, offset;
  A lower, span;

  BARACUDA_D explicit RreluOp(const RreluParams& p)
      : p(p), seed(p.seed()), offset(p.offset()), lower(p.lower), span(p.span) {}

  template <int V> struct Chunk {
    Vec<T, V> x, factor;
  };
  template <int V> BARACUDA_D Chunk<V> read(const MapPlace<V, 4>& place) const {
    Chunk<V> in;
    in.x = place.load(static_cast<const T*>(p.x), 1);
    in.factor = in.x;
    if (p.dy != nullptr) in.factor = place.load(static_cast<const T*>(p.dy), 2);
    return in;
  }
  template <int V> BARACUDA_D void write(const MapPlace<V, 4>& place, const Chunk<V>& in, bool wanted) const {
    u32 words[V];
    draws<V>(seed, offset, place.at[3], words);
    Vec<A, V> wide;
#pragma unroll
    for (int k = 0; k < V; ++k) {
      const A factor = to_acc(in.factor[k]), slope = math::fma(A(uniform_from_bits(words[k])), span, lower);
      wide[k] = to_acc(in.x[k]) <= A(0) ? factor * slope : factor;
    }
    if (wanted) place.store(static_cast<T*>(p.y), 0, cast_vec<T>(wide));
  }
};

template <class T, class L> BARACUDA_D void rrelu(const RreluParams& p) { map_chunks<L, 4>(p, RreluOp<T>(p)); }

}  // namespace baracuda
