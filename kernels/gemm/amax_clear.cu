// amax_clear     *amax = 0, from where the kernel behind it takes a maximum. One thread.
#include <baracuda/types.cuh>

namespace baracuda {

BARACUDA_D void amax_clear(const AmaxClearParams& p) {
  if (threadIdx.x == 0) *static_cast<float*>(p.amax) = 0.0f;
}

}  // namespace baracuda
