// special_function_backward   dy ∂f/∂a and dy ∂f/∂b, functors of a kind (elementwise/), of y's shape; schedule
// map, operands broadcast by strides of 0.
//
// A gradient that is not wanted is a null pointer; so is b where it is a number of the parameters, and c and d where
// f has fewer operands.
#include <baracuda/map.cuh>
#include <baracuda/math.cuh>

namespace baracuda {

template <class G, class T> struct SpecialFunctionBackwardOp {
  using A = acc_t<T>;
  const SpecialFunctionBackwardParams& p;
  A number;
  BARACUDA_D explicit SpecialFunctionBackwardOp(const SpecialFunctionBackwardParams& p)
      : p(p), number(static_cast<A>(p.b_number())) {}

  template <int V> struct Chunk {
    Vec<T, V> dy, a, b, c, d;
  };
  template <int V> BARACUDA_D Chunk<V> read(const MapPlace<V, 7>& place) const {
    Chunk<V> in;
    in.dy = place.load(static_cast<const T*>(p.dy), 2);
    in.a = place.load(static_cast<const T*>(p.a), 3);
    in.b = p.b != nullptr ? place.load(static_cast<const T*>(p.b), 4) : in.a;
    in.c = p.c != nullptr ? place.load(static_cast<const T*>(p.c), 5) : in.a;
    in.d = p.d != nullptr ? place.load(static_cast<const T*>(p.d), 6) : in.a;
    return in;
  }
  template <int OPERAND, int V>
  BARACUDA_D void one(void* to, const MapPlace<V, 7>& place, const Chunk<V>& in, bool wanted) const {
    if (to == nullptr) return;
    Vec<A, V> wide;
#pragma unroll
    for (int k = 0; k < V; ++k) {
      const A b = p.b != nullptr ? to_acc(in.b[k]) : number;
      wide[k] = G::template of<OPERAND>(to_acc(in.dy[k]), to_acc(in.a[k]), b, to_acc(in.c[k]), to_acc(in.d[k]));
    }
    if (wanted) place.store(static_cast<T*>(to), OPERAND, cast_vec<T>(wide));
  }
  template <int V> BARACUDA_D void write(const MapPlace<V, 7>& place, const Chunk<V>& in, bool wanted) const {
    one<0>(p.da, place, in, wanted);
    one<1>(p.db, place, in, wanted);
  }
};

template <class G, class T, class L> BARACUDA_D void special_function_backward(const SpecialFunctionBackwardParams& p) {
  map_chunks<L, 7>(p, SpecialFunctionBackwardOp<G, T>(p));
}

}  // namespace baracuda
