// ternary_backward  dy ∂f/∂a, dy ∂f/∂b and dy ∂f/∂c, functors of a kind (elementwise/ternary/), of operands of y's
// shape; schedule map. An operand that was broadcast has its gradient from ternary_backward_sum.cu.
//
// A gradient that is not wanted, and an operand that no wanted gradient reads, is a null pointer.
#include <baracuda/map.cuh>
#include "elementwise/ternary_gradients.cuh"

namespace baracuda {

template <class G, class T> struct TernaryBackwardOp {
  using A = acc_t<T>;
  using First = typename G::Forward::First;
  const TernaryBackwardParams& p;
  TernaryNumbers<A, TernaryBackwardParams> numbers;

  template <int V> struct Chunk {
    Vec<T, V> dy, b, c;
    Vec<First, V> a;
  };
  template <int V> BARACUDA_D Chunk<V> read(const MapPlace<V, 7>& place) const {
    Chunk<V> in;
    in.dy = place.load(static_cast<const T*>(p.dy), 3);
    in.a = {}, in.b = in.dy, in.c = in.dy;
    if (p.a != nullptr) in.a = place.load(static_cast<const First*>(p.a), 4);
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
      wide[k] =
          numbers.template gradient<G, OPERAND>(to_acc(in.dy[k]), cast<A>(in.a[k]), to_acc(in.b[k]), to_acc(in.c[k]));
    }
    const Vec<T, V> made = cast_vec<T>(wide);
    if (wanted) place.store(static_cast<T*>(to), OPERAND, made);
  }
  template <int V> BARACUDA_D void write(const MapPlace<V, 7>& place, const Chunk<V>& in, bool wanted) const {
    one<0>(p.da, place, in, wanted);
    one<1>(p.db, place, in, wanted);
    one<2>(p.dc, place, in, wanted);
  }
};

template <class G, class T, class L> BARACUDA_D void ternary_backward(const TernaryBackwardParams& p) {
  map_chunks<L, 7>(p, TernaryBackwardOp<G, T>{p, TernaryNumbers<acc_t<T>, TernaryBackwardParams>(p)});
}

}  // namespace baracuda
