#pragma once
// relu  max(0, x).
#include "elementwise/gradients.cuh"

namespace baracuda {

template <class T> struct Relu {
  using A = compute_t<T>;
  static BARACUDA_D A value(A x, const Coefficients<A>& = {}) { return math::maximum(x, A(0)); }
  static BARACUDA_D A by(A x, A factor) { return value(x) * factor; }
};

namespace gradient {

BARACUDA_GRADIENT(Relu, (x <= A(0) ? A(0) : dy))

}  // namespace gradient
}  // namespace baracuda
