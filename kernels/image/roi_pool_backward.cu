// roi_pool_backward   dx[n, c, y, x] = the sum of dy over the bins of image n's regions whose maximum is there
//
// Schedule planes, no atomics: a place looks at all regions, in their order, and at the bins of those that reach it.
#include "image/roi_bins.cuh"

namespace baracuda {

// Operands: 0 dx, 1 dy, 2 argmax.
template <class T, int N, bool TOGETHER> BARACUDA_D void roi_pool_backward(const RoiPoolBackwardParams& p) {
  using A = acc_t<T>;
  Spot<N, TOGETHER> spot;
  if (!spot.find(p)) return;
  const i64 row = spot.point[2], col = spot.point[3], own = row * p.width + col;
  const T* const dy = static_cast<const T*>(p.dy);
  i64 from[N], at[N];
  spot.begin(p, 1, from), spot.begin(p, 2, at);
  Vec<A, N> sum;
#pragma unroll
  for (int k = 0; k < N; ++k) sum[k] = A(0);
#pragma unroll 1
  for (i64 r = 0; r < p.regions; ++r) {
    const PooledRoi roi(p, static_cast<const T*>(p.rois), r);
    if (roi.image != spot.point[0] || !roi.reaches(p, 0, row) || !roi.reaches(p, 1, col)) continue;
#pragma unroll 1
    for (i64 i = 0; i < p.bins[0]; ++i) {
      if (!roi.has(p, 0, i, row)) continue;
#pragma unroll 1
      for (i64 j = 0; j < p.bins[1]; ++j) {
        if (!roi.has(p, 1, j, col)) continue;
        const Vec<A, N> part = spot.read(dy, from, r * p.steps[1][0] + i * p.steps[1][2] + j * p.steps[1][3]);
        const i64 step = r * p.steps[2][0] + i * p.steps[2][2] + j * p.steps[2][3];
#pragma unroll
        for (int k = 0; k < N; ++k) {
          const i64 place = read_index(p.argmax, p.wide, step + (TOGETHER ? at[0] + k : at[k]));
          if (place == own) sum[k] += part[k];
        }
      }
    }
  }
  spot.write(p, 0, static_cast<T*>(p.dx), sum);
}

}  // namespace baracuda
