#pragma once
// sigmoid  1 / (1 + exp(-x)).
#include "elementwise/activations.cuh"
#include "elementwise/gradients.cuh"

namespace baracuda {

template <class T, bool FLUSH = false> BARACUDA_D acc_t<T> sigmoid(acc_t<T> x, acc_t<T> by) {
  using A = acc_t<T>;
  const auto [h, r] = logistic<T, FLUSH>(x);
  const A half = x < A(0) ? h : A(1);
  return times_by<T>(half, half * r, by);
}

BARACUDA_GATE(Sigmoid, sigmoid)

namespace gradient {

// s (1 - s) = (h r)^2, and 1 / cosh(x)^2 = (2 h r)^2 at 2 x.
template <class T> struct Sigmoid {
  using A = acc_t<T>;
  static BARACUDA_D A value(A dy, A x, const Coefficients<A>& = {}) {
    const auto [h, r] = logistic<T>(x);
    return twice(dy, h * r);
  }
};

}  // namespace gradient
}  // namespace baracuda
