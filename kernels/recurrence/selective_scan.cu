// selective_scan   h = exp(dt a) h + dt b u, y = (Σ_n c h + d u) silu(z), dt = softplus(delta + delta_bias), step by step.
//
// Lanes and the order of the sum over states: selective_scan.cuh. The number of states fixes it.
#include "recurrence/selective_scan.cuh"

namespace baracuda {

template <class T, int NS, bool WIDE> BARACUDA_D void selective_scan(const SelectiveScanParams& p) {
  selective::scan<T, NS, WIDE>(p, 1);
}

}  // namespace baracuda
