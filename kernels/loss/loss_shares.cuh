#pragma once
// loss_shares what the losses of sequences add to their sum, as the kernel of the sequences left it in the workspace.
#include "loss/pointwise_sums.cuh"

namespace baracuda {

template <class T> struct LossShares {
  using Value = acc_t<T>;
  template <class P> BARACUDA_D explicit LossShares(const P&) {}
  template <class P> static BARACUDA_D void operands(const P& p, const void* (&at)[1]) { at[0] = p.shares; }
  BARACUDA_D Value operator()(Value share) const { return share; }
};

}  // namespace baracuda
