#pragma once
// tanh  the hyperbolic tangent.
#include "elementwise/activations.cuh"
#include "elementwise/gradients.cuh"

namespace baracuda {

BARACUDA_UNARY(Tanh, math::tanh(x))

namespace gradient {

template <class T> struct Tanh {
  using A = acc_t<T>;
  static BARACUDA_D A value(A dy, A x, const Coefficients<A>& = {}) {
    const auto [h, r] = logistic<T>(A(2) * x);
    return twice(dy, A(2) * h * r);
  }
};

}  // namespace gradient
}  // namespace baracuda
