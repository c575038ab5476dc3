#pragma once
// poisson_nll_loss  of a rate x and a count t. first: eps; one: whether x is a logarithm; two: with Stirling's terms.
#include "loss/pointwise_terms.cuh"

namespace baracuda::losses {

template <class A> struct PoissonNll {
  static BARACUDA_D A term(BARACUDA_LOSS_OPERANDS) {
    const A found = o.one ? math::exp(x) - t * x : x - t * math::log(x + o.first);
    if (!o.two || !(t > A(1))) return found;
    const A log_t = math::log(t);
    return found + (t * log_t - t + (A(0.5) * log_t + half_log_tau<A>));
  }
  template <int N> static BARACUDA_D A slope(BARACUDA_LOSS_OPERANDS) {
    if constexpr (N == 0) return o.one ? math::exp(x) - t : A(1) - t / (x + o.first);
    const A found = o.one ? -x : -math::log(x + o.first);
    return o.two && t > A(1) ? found + (math::log(t) + A(0.5) / t) : found;
  }
};

}  // namespace baracuda::losses
