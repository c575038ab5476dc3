// ps_roi_pool   y[k, c, i, j] = the mean over bin (i, j) of region k of the bin's own channel. Schedule planes.
//
// Places are added in row-major order.
#include "image/roi_bins.cuh"

namespace baracuda {

// Operands: 0 y, 1 x, whose second step is that of a bin's channel.
template <class T, int N, bool TOGETHER> BARACUDA_D void ps_roi_pool(const PsRoiPoolParams& p) {
  using A = acc_t<T>;
  Spot<N, TOGETHER> spot;
  if (!spot.find(p)) return;
  const PooledRoi roi(p, static_cast<const T*>(p.rois), spot.point[0]);
  const T* const x = static_cast<const T*>(p.x);
  const i64 i = spot.point[2], j = spot.point[3];
  i64 from[N];
  spot.begin(p, 1, from);
  Vec<A, N> sum;
#pragma unroll
  for (int k = 0; k < N; ++k) sum[k] = A(0);
  if (roi.image >= 0) {
    const i64 top = roi.low(p, 0, i), bottom = roi.high(p, 0, i), left = roi.low(p, 1, j), right = roi.high(p, 1, j);
    const i64 image = roi.image * p.steps[1][0] + (i * p.bins[1] + j) * p.steps[1][1];
#pragma unroll 1
    for (i64 row = top; row < bottom; ++row) {
#pragma unroll 1
      for (i64 col = left; col < right; ++col) {
        const Vec<A, N> part = spot.read(x, from, image + row * p.steps[1][2] + col * p.steps[1][3]);
#pragma unroll
        for (int k = 0; k < N; ++k) sum[k] += part[k];
      }
    }
    const A area = static_cast<A>(max<i64>((bottom - top) * (right - left), 1));
#pragma unroll
    for (int k = 0; k < N; ++k) sum[k] = sum[k] / area;
  }
  spot.write(p, 0, static_cast<T*>(p.y), sum);
}

}  // namespace baracuda
