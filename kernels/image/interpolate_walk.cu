// interpolate_walk   interpolate along columns: y[n, o] = sum over inputs i of w(o, i) x[n, i]. Schedule resample_walk.
//
// A row is summed across in the order of its inputs, and an output is a sum over rows in theirs.
#include "image/resample_walk.cuh"

namespace baracuda {

template <class T, int N, Resample MODE> BARACUDA_D void interpolate_walk(const InterpolateWalkParams& p) {
  walk_outputs<T, N, MODE>(p, static_cast<T*>(p.y), static_cast<const T*>(p.x));
}

}  // namespace baracuda
