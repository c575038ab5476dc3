#pragma once
// l1_loss  |x - t|.
#include "loss/pointwise_terms.cuh"

namespace baracuda::losses {

template <class A> struct L1 {
  static BARACUDA_D A term(BARACUDA_LOSS_OPERANDS) { return math::abs(x - t); }
  template <int N> static BARACUDA_D A slope(BARACUDA_LOSS_OPERANDS) { return N == 0 ? sign(x - t) : -sign(x - t); }
};

}  // namespace baracuda::losses
