// unary      y = f(x), f the functor of a kind (elementwise/unary/); schedule map.
#include <baracuda/map.cuh>
#include "elementwise/functors.cuh"

namespace baracuda {

template <template <class> class F, class T, class L> BARACUDA_D void unary(const UnaryParams& p) {
  using A = compute_t<T>;
  const Coefficients<A> k(p.coefficients);
  T* const y[1] = {static_cast<T*>(p.y)};
  const T* const x[1] = {static_cast<const T*>(p.x)};
  map<L>(p, y, x,
         [&](const auto& in, auto& out) { map_elements<A>([&](A v) { return F<T>::value(v, k); }, in, out[0]); });
}

}  // namespace baracuda
