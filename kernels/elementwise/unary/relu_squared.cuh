#pragma once
// relu_squared  max(0, x)^2, of a gate.
#include "elementwise/gradients.cuh"

namespace baracuda {

template <class T> struct ReluSquared {
  using A = compute_t<T>;
  static BARACUDA_D A value(A x, const Coefficients<A>& = {}) {
    return times(math::maximum(x, A(0)), math::maximum(x, A(0)));
  }
  static BARACUDA_D A by(A x, A factor) {
    return math::product(math::maximum(x, A(0)), factor, math::maximum(x, A(0)));
  }
};
namespace gradient {
template <class T> struct ReluSquared {
  using A = acc_t<T>;
  static BARACUDA_D A by(A dy, A up, A x) { return A(2) * math::product(dy, up, math::maximum(x, A(0))); }
};
}  // namespace gradient
}  // namespace baracuda
