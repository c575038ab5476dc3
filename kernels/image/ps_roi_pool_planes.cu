// ps_roi_pool_planes   ps_roi_pool of planes in shared memory: y[k, c, i, j] = the mean over bin (i, j) of region k of the
//                      bin's own channel. Schedule roi_planes.
//
// A block has N channels of one bin, a thread a region. Places are added in row-major order.
#include "image/roi_planes.cuh"

namespace baracuda {

template <class T, int N> BARACUDA_D void ps_roi_pool_planes(const PsRoiPoolPlanesParams& p) {
  using A = acc_t<T>;
  using V = Vec<T, N>;
  BARACUDA_DYNAMIC_SMEM(V, planes);
  __shared__ RoiList<ListedBin> list;
  const RoiOwner own(p, N);
  fetch_planes<T, N>(p, own, planes);
  const int width = static_cast<int>(p.width);
#pragma unroll 1
  for (i64 start = 0; start < p.regions; start += roi_window) {
    const int many = list.find(start, p.regions, [&](i64 region, ListedBin& entry) {
      const PooledRoi roi(p, static_cast<const T*>(p.rois), region);
      entry.keep(p, region, roi, own.bin);
      return max<i64>(roi.image, 0) == own.image;  // regions of no image are of the first one's block
    });
#pragma unroll 1
    for (int item = static_cast<int>(threadIdx.x); item < many; item += roi_threads) {
      const ListedBin bin = list.entries[item];
      Vec<A, N> sum;
#pragma unroll
      for (int k = 0; k < N; ++k) sum[k] = A(0);
      each_place(bin.corner, bin.rows, bin.columns, width, [&](int place) {
        const Vec<A, N> part = to_acc(planes[place]);
#pragma unroll
        for (int k = 0; k < N; ++k) sum[k] += part[k];
      });
      const A area = static_cast<A>(max(bin.rows * bin.columns, 1));
      T* y = static_cast<T*>(p.y) + bin.region * p.y_steps[0] + own.channel * p.y_steps[1] + own.bin[0] * p.y_steps[2] +
             own.bin[1] * p.y_steps[3];
#pragma unroll
      for (int k = 0; k < N; ++k, y += p.y_steps[1]) {
        if (k < own.many) *y = from_acc<T>(sum[k] / area);
      }
    }
    __syncthreads();
  }
}

}  // namespace baracuda
