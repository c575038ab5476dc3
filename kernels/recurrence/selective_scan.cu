// selective_scan   h = exp(dt a) h + dt b u, y = (Σ_n c h + d u) silu(z), dt = softplus(delta + delta_bias), step by step.
//
// COMPLEX: a, b, c and h are, and y is twice the real part of the sum. Lanes and the order of the sum over states: selective_scan.cuh. The number of states fixes it.
#include "recurrence/selective_scan.cuh"

namespace baracuda {

template <class T, int NS, bool WIDE, bool COMPLEX = false>
BARACUDA_D void selective_scan(const SelectiveScanParams& p) {
  selective::scan<T, NS, COMPLEX, WIDE>(p, 1);
}

}  // namespace baracuda
