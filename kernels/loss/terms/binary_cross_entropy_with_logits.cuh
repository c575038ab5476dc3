#pragma once
// binary_cross_entropy_with_logits  of a logit x; v is pos_weight.
#include "loss/pointwise_terms.cuh"

namespace baracuda::losses {

template <class A> struct BceWithLogits {
  static BARACUDA_D A term(BARACUDA_LOSS_OPERANDS) {
    return weighed(v * t, math::softplus(-x)) + weighed(A(1) - t, math::softplus(x));
  }
  template <int N> static BARACUDA_D A slope(BARACUDA_LOSS_OPERANDS) {
    if constexpr (N == 0) return (A(1) - t) * sigmoid(x) - v * t * sigmoid(-x);
    else return v * math::softplus(-x) - math::softplus(x);
  }
};

}  // namespace baracuda::losses
