#pragma once
// gaussian_nll_loss  of a mean x; v is the variance, `first` its least value. one: with the constant.
#include "loss/pointwise_terms.cuh"

namespace baracuda::losses {

template <class A> struct GaussianNll {
  static BARACUDA_D A term(BARACUDA_LOSS_OPERANDS) {
    const A s = at_least(v, o.first), found = A(0.5) * (math::log(s) + (x - t) * ((x - t) / s));
    return o.one ? found + half_log_tau<A> : found;
  }
  template <int N> static BARACUDA_D A slope(BARACUDA_LOSS_OPERANDS) {
    const A s = at_least(v, o.first), d = (x - t) / s;
    if constexpr (N == 2) return A(0.5) * (A(1) / s - d * d);
    else return N == 0 ? d : -d;
  }
};

}  // namespace baracuda::losses
