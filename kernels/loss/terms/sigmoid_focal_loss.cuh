#pragma once
// sigmoid_focal_loss  cross entropy of a logit x, with less weight where it is right already. first: alpha, below 0
// for none; second: gamma.
#include "loss/pointwise_terms.cuh"

namespace baracuda::losses {

template <class A> struct SigmoidFocal {
  static BARACUDA_D A power(const LossOptions<A>& o, A apart, A less) {
    if (o.second == A(0)) return less == A(0) ? A(1) : A(0);
    return less == A(0) ? math::pow(apart, o.second) : o.second * math::pow(apart, o.second - A(1));
  }
  static BARACUDA_D A part(const LossOptions<A>& o, A t) {
    return o.first >= A(0) ? o.first * t + (A(1) - o.first) * (A(1) - t) : A(1);
  }
  static BARACUDA_D A entropy(A x, A t) {
    return weighed(t, math::softplus(-x)) + weighed(A(1) - t, math::softplus(x));
  }
  static BARACUDA_D A term(BARACUDA_LOSS_OPERANDS) {
    const A apart = sigmoid(x) * (A(1) - t) + sigmoid(-x) * t;
    return part(o, t) * weighed(power(o, apart, A(0)), entropy(x, t));
  }
  template <int N> static BARACUDA_D A slope(BARACUDA_LOSS_OPERANDS) {
    const A p = sigmoid(x), q = sigmoid(-x), apart = p * (A(1) - t) + q * t;
    const A near = power(o, apart, A(0)), steep = entropy(x, t) * power(o, apart, A(1));
    if constexpr (N == 0) {
      return part(o, t) * (((A(1) - t) * p - t * q) * near + steep * (A(1) - A(2) * t) * (p * q));
    } else {
      const A found = part(o, t) * (-x * near + steep * (q - p));
      return o.first >= A(0) ? found + (A(2) * o.first - A(1)) * entropy(x, t) * near : found;
    }
  }
};

}  // namespace baracuda::losses
