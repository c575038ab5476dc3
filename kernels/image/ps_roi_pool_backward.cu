// ps_roi_pool_backward   dx[n, channel of a bin, y, x] = the sum of dy / area over image n's regions whose bin has (y, x)
//
// Schedule planes, no atomics: a place looks at all regions, in their order, and at the one bin of its channel.
#include "image/roi_bins.cuh"

namespace baracuda {

// Operands: 0 dx, whose second axis is that of a bin's channels, 1 dy.
template <class T, int N, bool TOGETHER> BARACUDA_D void ps_roi_pool_backward(const PsRoiPoolBackwardParams& p) {
  using A = acc_t<T>;
  Spot<N, TOGETHER> spot;
  if (!spot.find(p)) return;
  const i64 row = spot.point[2], col = spot.point[3];
  const i64 i = spot.point[1] / p.bins[1], j = spot.point[1] % p.bins[1];
  const T* const dy = static_cast<const T*>(p.dy);
  i64 from[N];
  spot.begin(p, 1, from);
  Vec<A, N> sum;
#pragma unroll
  for (int k = 0; k < N; ++k) sum[k] = A(0);
#pragma unroll 1
  for (i64 r = 0; r < p.regions; ++r) {
    const PooledRoi roi(p, static_cast<const T*>(p.rois), r);
    if (roi.image != spot.point[0] || !roi.reaches(p, 0, row) || !roi.reaches(p, 1, col)) continue;
    if (!roi.has(p, 0, i, row) || !roi.has(p, 1, j, col)) continue;
    const A area = static_cast<A>((roi.high(p, 0, i) - roi.low(p, 0, i)) * (roi.high(p, 1, j) - roi.low(p, 1, j)));
    const Vec<A, N> part = spot.read(dy, from, r * p.steps[1][0] + i * p.steps[1][2] + j * p.steps[1][3]);
#pragma unroll
    for (int k = 0; k < N; ++k) sum[k] += part[k] / area;
  }
  spot.write(p, 0, static_cast<T*>(p.dx), sum);
}

}  // namespace baracuda
