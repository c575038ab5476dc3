#pragma once
// pointwise_scale  what every slope is multiplied by where the losses were added up: dloss over what divided their sum.
#include <baracuda/types.cuh>

namespace baracuda {

// 1 where each loss has a gradient of its own. p.total: the sum of the weights, where the mean was divided by that.
template <class A, class P> BARACUDA_D A loss_scale(const P& p) {
  if (p.per_element) return A(1);
  const A dloss = *static_cast<const A*>(p.dloss);
  if (p.total != nullptr) return dloss / *static_cast<const A*>(p.total);
  return p.divided ? dloss / static_cast<A>(p.divisor) : dloss;
}

}  // namespace baracuda
