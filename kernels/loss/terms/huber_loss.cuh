#pragma once
// huber_loss  quadratic for |x - t| up to delta, which is `first`, linear beyond.
#include "loss/pointwise_terms.cuh"

namespace baracuda::losses {

template <class A> struct Huber {
  static BARACUDA_D A within(A x, A end) { return x < -end ? -end : x > end ? end : x; }
  static BARACUDA_D A term(BARACUDA_LOSS_OPERANDS) {
    const A d = math::abs(x - t);
    return d <= o.first ? A(0.5) * d * d : o.first * (d - A(0.5) * o.first);
  }
  template <int N> static BARACUDA_D A slope(BARACUDA_LOSS_OPERANDS) {
    const A g = within(x - t, o.first);
    return N == 0 ? g : -g;
  }
};

}  // namespace baracuda::losses
