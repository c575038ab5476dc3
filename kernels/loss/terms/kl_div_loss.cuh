#pragma once
// kl_div_loss  p (log p - x), x a logarithm; `one` says whether t is log p instead of p.
#include "loss/pointwise_terms.cuh"

namespace baracuda::losses {

template <class A> struct KlDiv {
  static BARACUDA_D A nothing(A x) { return math::isnan(x) ? x : A(0); }
  static BARACUDA_D A term(BARACUDA_LOSS_OPERANDS) {
    const A p = o.one ? math::exp(t) : t;
    return p == A(0) ? nothing(x) : p * ((o.one ? t : math::log(t)) - x);
  }
  template <int N> static BARACUDA_D A slope(BARACUDA_LOSS_OPERANDS) {
    if constexpr (N == 0) return o.one ? -math::exp(t) : -t;
    if (!o.one) return math::log(t) + A(1) - x;
    const A p = math::exp(t);
    return p == A(0) ? nothing(x) : p * (t - x + A(1));
  }
};

}  // namespace baracuda::losses
