// affine     y = alpha x + beta, one fused multiply-add; integers wrap. Schedule map.
#include <baracuda/map.cuh>
#include "elementwise/functors.cuh"

namespace baracuda {

template <class T, class L> BARACUDA_D void affine(const AffineParams& p) {
  using A = compute_t<T>;
  A alpha, beta;
  if constexpr (is_integer<T>) {  // modulo 2^n
    alpha = static_cast<A>(p.alpha_whole()), beta = static_cast<A>(p.beta_whole());
  } else {
    alpha = static_cast<A>(p.alpha()), beta = static_cast<A>(p.beta());
  }
  T* const y[1] = {static_cast<T*>(p.y)};
  const T* const x[1] = {static_cast<const T*>(p.x)};
  map<L>(p, y, x, [&](const auto& in, auto& out) {
    map_elements<A>(
        [&](A v) {
          if constexpr (is_integer<T>) return plus(times(alpha, v), beta);
          else return math::fma(alpha, v, beta);
        },
        in, out[0]);
  });
}

}  // namespace baracuda
