// pointwise_loss_total  the sum of the weights of a loss, in acc_t<T>; schedule reduce. What fixes the order of the sum
// stands in baracuda/reduce_axes.cuh: the number of elements, and their size.
#include "loss/pointwise_sums.cuh"

namespace baracuda {

template <class T> struct LossWeight {
  using Value = acc_t<T>;
  template <class P> BARACUDA_D explicit LossWeight(const P&) {}
  template <class P> static BARACUDA_D void operands(const P& p, const void* (&at)[1]) { at[0] = p.weight; }
  BARACUDA_D Value operator()(T w) const { return to_acc(w); }
};

}  // namespace baracuda
