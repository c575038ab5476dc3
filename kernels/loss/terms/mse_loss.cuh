#pragma once
// mse_loss  (x - t)^2.
#include "loss/pointwise_terms.cuh"

namespace baracuda::losses {

template <class A> struct Mse {
  static BARACUDA_D A term(BARACUDA_LOSS_OPERANDS) { return (x - t) * (x - t); }
  template <int N> static BARACUDA_D A slope(BARACUDA_LOSS_OPERANDS) {
    const A d = A(2) * (x - t);
    return N == 0 ? d : -d;
  }
};

}  // namespace baracuda::losses
