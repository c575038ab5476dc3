// interpolate_backward   dx[n, i] = sum over the outputs o that read i of w(o, i) dy[n, o]. Schedule planes, no atomics.
//
// The sum is in the row-major order of the outputs, over one range an axis: what an output reads never moves back.
#include "image/resampled.cuh"

namespace baracuda {

template <class T, int N, bool TOGETHER, Resample MODE>
BARACUDA_D void interpolate_backward(const InterpolateBackwardParams& p) {
  resample<T, N, TOGETHER, MODE, true>(p, static_cast<T*>(p.dx), static_cast<const T*>(p.dy));
}
template <class T, int N, Resample MODE>
BARACUDA_D void interpolate_backward_stack(const InterpolateBackwardParams& p) {
  resample_stack<T, N, MODE, true>(p, static_cast<T*>(p.dx), static_cast<const T*>(p.dy));
}

}  // namespace baracuda
