#pragma once
// smooth_l1_loss  quadratic for |x - t| below beta, which is `first`, linear beyond.
#include "loss/pointwise_terms.cuh"

namespace baracuda::losses {

template <class A> struct SmoothL1 {
  static BARACUDA_D A term(BARACUDA_LOSS_OPERANDS) {
    const A d = math::abs(x - t);
    return d < o.first ? A(0.5) * d * (d / o.first) : d - A(0.5) * o.first;
  }
  template <int N> static BARACUDA_D A slope(BARACUDA_LOSS_OPERANDS) {
    const A d = x - t, g = math::abs(d) < o.first ? d / o.first : sign(d);
    return N == 0 ? g : -g;
  }
};

}  // namespace baracuda::losses
