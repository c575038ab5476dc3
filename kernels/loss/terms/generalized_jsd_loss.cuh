#pragma once
// generalized_jsd_loss  x = log q, t = log p, against their mixture; `first` is beta, the share of p in it.
#include "loss/pointwise_terms.cuh"

namespace baracuda::losses {

template <class A> struct Jsd {
  static BARACUDA_D A mixture(const LossOptions<A>& o, A x, A t) {
    const A top = math::maximum(x, t);
    if (math::isinf(top)) return top;
    return top + math::log(o.first * math::exp(t - top) + (A(1) - o.first) * math::exp(x - top));
  }
  static BARACUDA_D A times(A p, A x) { return p == A(0) ? A(0) : p * x; }
  static BARACUDA_D A term(BARACUDA_LOSS_OPERANDS) {
    const A q = math::exp(x), p = math::exp(t);
    if (o.first == A(0)) return times(p, t - x);
    if (o.first == A(1)) return times(q, x - t);
    const A m = mixture(o, x, t);
    return o.first * times(p, t - m) + (A(1) - o.first) * times(q, x - m);
  }
  template <int N> static BARACUDA_D A slope(BARACUDA_LOSS_OPERANDS) {
    const A own = N == 0 ? x : t, other = N == 0 ? t : x, share = N == 0 ? A(1) - o.first : o.first;
    if (share == A(1)) return -math::exp(other);
    if (share == A(0)) return times(math::exp(own), own - other + A(1));
    return share * times(math::exp(own), own - mixture(o, x, t));
  }
};

}  // namespace baracuda::losses
