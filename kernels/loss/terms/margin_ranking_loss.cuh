#pragma once
// margin_ranking_loss  max(0, margin - t (x - v)); v is the second input, `first` the margin.
#include "loss/pointwise_terms.cuh"

namespace baracuda::losses {

template <class A> struct MarginRanking {
  static BARACUDA_D A term(BARACUDA_LOSS_OPERANDS) { return at_least(o.first - t * (x - v), A(0)); }
  template <int N> static BARACUDA_D A slope(BARACUDA_LOSS_OPERANDS) {
    if (!(o.first - t * (x - v) >= A(0))) return A(0);
    if constexpr (N == 1) return v - x;
    else return N == 0 ? -t : t;
  }
};

}  // namespace baracuda::losses
