// binary     y = f(a, b), f the functor of a kind (elementwise/binary/); schedule map, a and b broadcast by strides of 0.
//
// One of the operands may be a number of the parameters: its pointer is null, and nothing is read for it. Only where
// elements are read one by one, the other's first is read instead: branches there cost registers.
#include <baracuda/map.cuh>
#include "elementwise/binary_number.cuh"

namespace baracuda {

template <template <class> class Function, class T> struct BinaryOp {
  using F = Function<T>;
  using A = compute_t<T>;
  using Result = typename F::Result;
  const BinaryParams& p;
  A number, alpha;
  const T* left;  // of an absent operand the other's
  const T* right;

  BARACUDA_D explicit BinaryOp(const BinaryParams& p) : p(p), number(given_number<F, T>(p)), alpha(A(1)) {
    left = static_cast<const T*>(p.left ? p.left : p.right);
    right = static_cast<const T*>(p.right ? p.right : p.left);
    if constexpr (F::coefficients == 1 && is_integer<T>) alpha = static_cast<A>(p.alpha_whole());  // modulo 2^n
    else if constexpr (F::coefficients == 1) alpha = static_cast<A>(p.alpha());
  }
  BARACUDA_D auto value(A a, A b) const {
    if constexpr (F::coefficients == 0) return F::value(a, b);
    else if constexpr (F::coefficients == 1) return F::value(a, b, alpha);
    else return F::value(a, b, p.rtol, p.atol, p.equal_nan != 0);
  }

  template <int V> struct Chunk {
    Vec<T, V> left, right;
  };
  template <int V> BARACUDA_D Chunk<V> read(const MapPlace<V, 3>& place) const {
    Chunk<V> in;
    if (V == 1 || p.left != nullptr) in.left = place.load(left, 1);
    if (V == 1 || p.right != nullptr) in.right = place.load(right, 2);
    return in;
  }
  template <int V> BARACUDA_D void write(const MapPlace<V, 3>& place, const Chunk<V>& in, bool wanted) const {
    const Vec<A, V> a = cast_vec<A>(in.left), b = cast_vec<A>(in.right);
    Vec<decltype(value(A(), A())), V> y;
#pragma unroll
    for (int k = 0; k < V; ++k) y[k] = value(p.left ? a[k] : number, p.right ? b[k] : number);
    if (wanted) place.store(static_cast<Result*>(p.y), 0, cast_vec<Result>(y));
  }
};

template <template <class> class F, class T, class L> BARACUDA_D void binary(const BinaryParams& p) {
  map_chunks<L, 3>(p, BinaryOp<F, T>(p));
}

}  // namespace baracuda
