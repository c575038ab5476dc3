#pragma once
// hinge_embedding_loss  x where t is 1, max(0, margin - x) where it is -1; `first` is the margin.
#include "loss/pointwise_terms.cuh"

namespace baracuda::losses {

template <class A> struct HingeEmbedding {
  static BARACUDA_D A term(BARACUDA_LOSS_OPERANDS) {
    return (t != A(-1) ? x : A(0)) + (t != A(1) ? at_least(o.first - x, A(0)) : A(0));
  }
  template <int N> static BARACUDA_D A slope(BARACUDA_LOSS_OPERANDS) {
    return (t != A(-1) ? A(1) : A(0)) - (t != A(1) && o.first - x >= A(0) ? A(1) : A(0));
  }
};

}  // namespace baracuda::losses
