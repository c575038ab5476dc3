#pragma once
// binary_cross_entropy  of a probability x; logarithms are -100 at least, as in PyTorch.
#include "loss/pointwise_terms.cuh"

namespace baracuda::losses {

template <class A> struct Bce {
  static BARACUDA_D A log_of(A x) { return at_least(math::log(x), A(-100)); }
  static BARACUDA_D A log_rest(A x) { return at_least(math::log1p(-x), A(-100)); }
  static BARACUDA_D A term(BARACUDA_LOSS_OPERANDS) { return (t - A(1)) * log_rest(x) - t * log_of(x); }
  template <int N> static BARACUDA_D A slope(BARACUDA_LOSS_OPERANDS) {
    if constexpr (N == 0) return (x - t) / at_least((A(1) - x) * x, A(1e-12));
    else return log_rest(x) - log_of(x);
  }
};

}  // namespace baracuda::losses
