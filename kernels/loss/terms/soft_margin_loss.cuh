#pragma once
// soft_margin_loss  log(1 + exp(-t x)).
#include "loss/pointwise_terms.cuh"

namespace baracuda::losses {

template <class A> struct SoftMargin {
  static BARACUDA_D A term(BARACUDA_LOSS_OPERANDS) { return math::softplus(-t * x); }
  template <int N> static BARACUDA_D A slope(BARACUDA_LOSS_OPERANDS) { return -t * sigmoid(-t * x); }
};

}  // namespace baracuda::losses
