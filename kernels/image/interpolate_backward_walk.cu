// interpolate_backward_walk   interpolate_backward along columns: dx[n, i] = sum over the outputs o that read i of w(o, i)
//                             dy[n, o]. Schedule resample_walk, no atomics.
//
// A row is summed across in the order of its outputs, and an input's sum goes over rows in theirs.
#include "image/resample_walk.cuh"

namespace baracuda {

template <class T, int N, int TAPS, Resample MODE>
BARACUDA_D void interpolate_backward_walk(const InterpolateBackwardWalkParams& p) {
  walk_inputs<T, N, TAPS, MODE>(p, static_cast<T*>(p.dx), static_cast<const T*>(p.dy));
}

}  // namespace baracuda
