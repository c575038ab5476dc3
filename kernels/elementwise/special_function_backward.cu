// special_function_backward   dy ∂f/∂a, dy ∂f/∂b and dy ∂f/∂c, functors of elementwise/special_partials.cuh, of operands
// of y's shape; schedule map. An operand that was broadcast has its gradient from special_function_backward_sum.cu.
//
// A gradient that is not wanted, and an operand that no wanted gradient reads, is a null pointer.
#include <baracuda/map.cuh>
#include "elementwise/special_partials.cuh"

namespace baracuda {

template <class G, class T> struct SpecialFunctionBackwardOp {
  using A = acc_t<T>;
  const SpecialFunctionBackwardParams& p;
  SpecialNumber<A, SpecialFunctionBackwardParams> number;

  template <int V> struct Chunk {
    Vec<T, V> dy, a, b, c;
  };
  template <int V> BARACUDA_D Chunk<V> read(const MapPlace<V, 7>& place) const {
    Chunk<V> in;
    in.dy = place.load(static_cast<const T*>(p.dy), 3);
    in.a = in.dy, in.b = in.dy, in.c = in.dy;
    if (p.a != nullptr) in.a = place.load(static_cast<const T*>(p.a), 4);
    if (p.b != nullptr) in.b = place.load(static_cast<const T*>(p.b), 5);
    if (p.c != nullptr) in.c = place.load(static_cast<const T*>(p.c), 6);
    return in;
  }
  template <int OPERAND, int V>
  BARACUDA_D void one(void* to, const MapPlace<V, 7>& place, const Chunk<V>& in, bool wanted) const {
    if (to == nullptr) return;
    Vec<A, V> wide;
#pragma unroll
    for (int k = 0; k < V; ++k) {
      wide[k] = G::template of<OPERAND>(to_acc(in.dy[k]), to_acc(in.a[k]), number(to_acc(in.b[k])), to_acc(in.c[k]));
    }
    if (wanted) place.store(static_cast<T*>(to), OPERAND, cast_vec<T>(wide));
  }
  template <int V> BARACUDA_D void write(const MapPlace<V, 7>& place, const Chunk<V>& in, bool wanted) const {
    one<0>(p.da, place, in, wanted);
    one<1>(p.db, place, in, wanted);
    one<2>(p.dc, place, in, wanted);
  }
};

template <class G, class T, class L> BARACUDA_D void special_function_backward(const SpecialFunctionBackwardParams& p) {
  map_chunks<L, 7>(p, SpecialFunctionBackwardOp<G, T>{p, SpecialNumber<acc_t<T>, SpecialFunctionBackwardParams>(p)});
}

}  // namespace baracuda
