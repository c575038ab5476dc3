#pragma once
// silu  x sigmoid(x).
#include "elementwise/activations.cuh"
#include "elementwise/gradients.cuh"

namespace baracuda {

template <class T, bool FLUSH = false> BARACUDA_D acc_t<T> silu(acc_t<T> x, acc_t<T> by) {
  return times_sigmoid<T>(x, logistic<T, FLUSH>(x), by);
}

BARACUDA_GATE(Silu, silu)

template <class T, class A> BARACUDA_D A silu_gradient(A dy, A x) {
  return logistic_gradient(dy, x, x < A(0), logistic<T>(x), A(1));
}

namespace gradient {

BARACUDA_GRADIENT(Silu, silu_gradient<T>(dy, x))

}  // namespace gradient
}  // namespace baracuda
