// interpolate   y[n, o] = sum over inputs i of w(o, i) x[n, i], w a product of one weight an axis. Schedule planes.
//
// The sum is in the row-major order of the inputs, over one range an axis.
#include "image/resampled.cuh"

namespace baracuda {

template <class T, int N, bool TOGETHER, Resample MODE> BARACUDA_D void interpolate(const InterpolateParams& p) {
  resample<T, N, TOGETHER, MODE, false>(p, static_cast<T*>(p.y), static_cast<const T*>(p.x));
}
template <class T, int N, Resample MODE> BARACUDA_D void interpolate_stack(const InterpolateParams& p) {
  resample_stack<T, N, MODE, false>(p, static_cast<T*>(p.y), static_cast<const T*>(p.x));
}
template <class T, int N, Resample MODE> BARACUDA_D void interpolate_rows(const InterpolateParams& p) {
  constexpr int some = ResampleAxis<MODE>::picks ? 4 : 2;  // planes at a time, by what registers hold
  resample_rows<T, N, some, MODE>(p, static_cast<T*>(p.y), static_cast<const T*>(p.x));
}

}  // namespace baracuda
