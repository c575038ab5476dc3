#pragma once
// row_sums   the sum of the losses of rows, from the workspace, by the schedule reduce.
#include "loss/pointwise_sums.cuh"

namespace baracuda {

// The losses of rows and their weights, as row_loss left them; bit 1 of `present` says that there are weights.
template <class T> struct RowLosses {
  using A = acc_t<T>;
  using Value = WeightedLoss<A>;
  int present;
  template <class P> BARACUDA_D explicit RowLosses(const P& p) : present(p.present) {}
  template <class P> static BARACUDA_D void operands(const P& p, const void* (&at)[2]) {
    at[0] = p.losses, at[1] = p.weights;
  }
  BARACUDA_D Value operator()(A loss, A weight) const { return {loss, present & 2 ? weight : A(1)}; }
};

}  // namespace baracuda
