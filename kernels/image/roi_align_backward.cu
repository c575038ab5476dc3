// roi_align_backward   dx[n, c, y, x] = the sum over regions and their bins of what they sample of the place times dy
//
// Schedule planes, no atomics: a place looks at all regions, in their order, and at the bins of those that reach it.
#include "image/roi.cuh"

namespace baracuda {

// Operands: 0 dx, whose second axis is that of a bin's channels, 1 dy.
template <class T, int N, bool TOGETHER> BARACUDA_D void roi_align_backward(const RoiAlignBackwardParams& p) {
  using A = acc_t<T>;
  Spot<N, TOGETHER> spot;
  if (!spot.find(p)) return;
  const T* const dy = static_cast<const T*>(p.dy);
  i64 from[N];
  spot.begin(p, 1, from);
  Vec<A, N> sum;
#pragma unroll
  for (int k = 0; k < N; ++k) sum[k] = A(0);
#pragma unroll 1
  for (i64 r = 0; r < p.regions; ++r) {
    const Roi roi(p, static_cast<const T*>(p.rois), r);
    if (roi.image != spot.point[0]) continue;
#pragma unroll 1
    for (i64 i = 0; i < p.bins[0]; ++i) {
      const double row = roi.y.weight(i, spot.point[2]) / roi.count();
      if (row == 0.0) continue;
#pragma unroll 1
      for (i64 j = 0; j < p.bins[1]; ++j) {
        if (p.sensitive && spot.point[1] != i * p.bins[1] + j) continue;
        const double col = roi.x.weight(j, spot.point[3]);
        if (col == 0.0) continue;
        const A w = static_cast<A>(row * col);
        const Vec<A, N> part = spot.read(dy, from, r * p.steps[1][0] + i * p.steps[1][2] + j * p.steps[1][3]);
#pragma unroll
        for (int k = 0; k < N; ++k) sum[k] = math::fma(w, part[k], sum[k]);
      }
    }
  }
  spot.write(p, 0, static_cast<T*>(p.dx), sum);
}

}  // namespace baracuda
