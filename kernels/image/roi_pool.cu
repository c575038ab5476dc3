// roi_pool   y[k, c, i, j] = the largest element of channel c in bin (i, j) of region k, and argmax its place. Schedule planes.
//
// Places are compared in row-major order; of equal ones, and of several NaN, the first stays.
#include "image/roi_bins.cuh"

namespace baracuda {

// Operands: 0 y, 1 x, 2 argmax.
template <class T, int N, bool TOGETHER> BARACUDA_D void roi_pool(const RoiPoolParams& p) {
  using A = acc_t<T>;
  Spot<N, TOGETHER> spot;
  if (!spot.find(p)) return;
  const PooledRoi roi(p, static_cast<const T*>(p.rois), spot.point[0]);
  const T* const x = static_cast<const T*>(p.x);
  i64 from[N], places[N];
  spot.begin(p, 1, from);
  Vec<A, N> best;
#pragma unroll
  for (int k = 0; k < N; ++k) best[k] = A(0), places[k] = -1;
  if (roi.image >= 0) {
    const i64 bottom = roi.high(p, 0, spot.point[2]), left = roi.low(p, 1, spot.point[3]),
              right = roi.high(p, 1, spot.point[3]);
    const i64 top = roi.low(p, 0, spot.point[2]), image = roi.image * p.steps[1][0];
    if (top < bottom && left < right) {
      best = spot.read(x, from, image + top * p.steps[1][2] + left * p.steps[1][3]);
#pragma unroll
      for (int k = 0; k < N; ++k) places[k] = top * p.width + left;
    }
#pragma unroll 1
    for (i64 row = top; row < bottom; ++row) {
      i64 step = image + row * p.steps[1][2] + left * p.steps[1][3], place = row * p.width + left;
#pragma unroll 2
      for (; place < row * p.width + right; ++place, step += p.steps[1][3]) {
        const Vec<A, N> part = spot.read(x, from, step);
#pragma unroll
        for (int k = 0; k < N; ++k) {
          const bool better = !(part[k] <= best[k]) && best[k] == best[k];
          best[k] = better ? part[k] : best[k], places[k] = better ? place : places[k];
        }
      }
    }
  }
  spot.write(p, 0, static_cast<T*>(p.y), best);
  if (p.argmax == nullptr) return;
  i64 at[N], step = 0;
  spot.begin(p, 2, at);
#pragma unroll
  for (int a = 0; a < 4; ++a) step += spot.point[a] * p.steps[2][a];
#pragma unroll
  for (int k = 0; k < N; ++k) {
    if (!TOGETHER && spot.plane(p, k) >= p.planes) continue;
    const i64 to = step + (TOGETHER ? at[0] + k : at[k]);
    if (p.wide) static_cast<i64*>(p.argmax)[to] = places[k];
    else static_cast<i32*>(p.argmax)[to] = static_cast<i32>(places[k]);
  }
}

}  // namespace baracuda
