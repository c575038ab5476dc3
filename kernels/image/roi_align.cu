// roi_align   y[k, c, i, j] = the mean of what bin (i, j) of region k samples of channel c, bilinearly. Schedule planes.
//
// Samples are added in row-major order, each the sum of its four places.
#include "image/roi.cuh"

namespace baracuda {

// Operands: 0 y, 1 x, whose second step is that of a bin's channel.
template <class T, int N, bool TOGETHER> BARACUDA_D void roi_align(const RoiAlignParams& p) {
  using A = acc_t<T>;
  Spot<N, TOGETHER> spot;
  if (!spot.find(p)) return;
  const Roi roi(p, static_cast<const T*>(p.rois), spot.point[0]);
  const T* const x = static_cast<const T*>(p.x);
  const i64 i = spot.point[2], j = spot.point[3];
  i64 from[N];
  spot.begin(p, 1, from);
  Vec<A, N> sum;
#pragma unroll
  for (int k = 0; k < N; ++k) sum[k] = A(0);
  const i64 image = roi.image * p.steps[1][0] + (i * p.bins[1] + j) * p.steps[1][1];
#pragma unroll 1
  for (i64 a = 0; roi.image >= 0 && a < roi.y.samples; ++a) {
    const RoiAxis::Sample row = roi.y.sample(i, a);
    if (!row.inside) continue;
#pragma unroll 1
    for (i64 b = 0; b < roi.x.samples; ++b) {
      const RoiAxis::Sample col = roi.x.sample(j, b);
      if (!col.inside) continue;
#pragma unroll
      for (int corner = 0; corner < 4; ++corner) {
        const i64 step = image + (corner & 2 ? row.high : row.low) * p.steps[1][2] +
                         (corner & 1 ? col.high : col.low) * p.steps[1][3];
        const double w = (corner & 2 ? row.share : 1.0 - row.share) * (corner & 1 ? col.share : 1.0 - col.share);
        const Vec<A, N> part = spot.read(x, from, step);
#pragma unroll
        for (int k = 0; k < N; ++k) sum[k] = math::fma(static_cast<A>(w), part[k], sum[k]);
      }
    }
  }
  const A count = static_cast<A>(roi.count());
#pragma unroll
  for (int k = 0; k < N; ++k) sum[k] = sum[k] / count;
  spot.write(p, 0, static_cast<T*>(p.y), sum);
}

}  // namespace baracuda
