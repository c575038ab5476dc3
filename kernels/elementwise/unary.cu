// unary      y = f(x), f one functor of elementwise/functors.cuh; schedule map.
#include <baracuda/map.cuh>
#include "elementwise/functors.cuh"

namespace baracuda {

// The element of y: bool for predicates, that of x for the others.
template <class T, class R> using unary_result_t = conditional<is_same<R, bool>, bool, T>;

template <template <class> class F, class T, class L> BARACUDA_D void unary(const UnaryParams& p) {
  using A = compute_t<T>;
  using Y = unary_result_t<T, decltype(F<T>::value(A(0), Coefficients<A>()))>;
  const Coefficients<A> k(p.coefficients);
  Y* const y[1] = {static_cast<Y*>(p.y)};
  const T* const x[1] = {static_cast<const T*>(p.x)};
  map<L>(p, y, x,
         [&](const auto& in, auto& out) { map_elements<A>([&](A v) { return F<T>::value(v, k); }, in, out[0]); });
}

}  // namespace baracuda
