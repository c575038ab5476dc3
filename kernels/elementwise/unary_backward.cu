// unary_backward   dx = dy f'(x), f' the gradient of a kind (elementwise/unary/); schedule map.
#include <baracuda/map.cuh>
#include "elementwise/gradients.cuh"

namespace baracuda {

template <template <class> class G, class T, class L> BARACUDA_D void unary_backward(const UnaryBackwardParams& p) {
  using A = acc_t<T>;
  const Coefficients<A> k(p.coefficients);
  T* const dx[1] = {static_cast<T*>(p.dx)};
  const T* const given[2] = {static_cast<const T*>(p.dy), static_cast<const T*>(p.x)};
  map<L>(p, dx, given, [&](const auto& in, auto& out) {
    map_elements<A>([&](A dy, A x) { return G<T>::value(dy, x, k); }, in, out[0]);
  });
}

}  // namespace baracuda
