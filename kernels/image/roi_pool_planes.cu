// roi_pool_planes   roi_pool of planes in shared memory: y[k, c, i, j] = the largest element of channel c in bin (i, j) of
//                   region k, and argmax its place. Schedule roi_planes.
//
// A thread has a bin in the N channels of its block. Places are compared in row-major order; of equal ones, and of several
// NaN, the first stays.
#include "image/roi_planes.cuh"

namespace baracuda {

template <class T, int N> BARACUDA_D void roi_pool_planes(const RoiPoolPlanesParams& p) {
  using A = acc_t<T>;
  using V = Vec<T, N>;
  BARACUDA_DYNAMIC_SMEM(V, planes);
  __shared__ RoiList<ListedRoi> list;
  const RoiOwner own(p, N);
  fetch_planes<T, N>(p, own, planes);
  const int columns = static_cast<int>(p.bins[1]), bins = static_cast<int>(p.bins[0]) * columns;
  const int width = static_cast<int>(p.width);
#pragma unroll 1
  for (i64 start = 0; start < p.regions; start += roi_window) {
    // Regions of no image are of the first one's block: all their bins are empty.
    const int many = list.find(start, p.regions, [&](i64 region, ListedRoi& entry) {
      const PooledRoi roi(p, static_cast<const T*>(p.rois), region);
      entry.keep(region, roi);
      return max<i64>(roi.image, 0) == own.image;
    });
#pragma unroll 1
    for (u32 item = blockIdx.y * roi_threads + threadIdx.x; item < static_cast<u32>(many * bins);
         item += gridDim.y * roi_threads) {
      u32 bin;
      const ListedRoi roi = list.entries[divmod(item, static_cast<u32>(bins), bin)];
      const int i = static_cast<int>(bin) / columns, j = static_cast<int>(bin) - i * columns;
      const int top = roi.low(p, 0, i), bottom = roi.high(p, 0, i), left = roi.low(p, 1, j), right = roi.high(p, 1, j);
      Vec<A, N> best;
      i32 at[N];
#pragma unroll
      for (int k = 0; k < N; ++k) best[k] = A(0), at[k] = -1;
      if (top < bottom && left < right) {
        best = to_acc(planes[top * width + left]);
#pragma unroll
        for (int k = 0; k < N; ++k) at[k] = top * width + left;
        each_place(top * width + left, bottom - top, right - left, width, [&](int place) {
          const Vec<A, N> part = to_acc(planes[place]);
#pragma unroll
          for (int k = 0; k < N; ++k) {
            const bool better = !(part[k] <= best[k]) && best[k] == best[k];
            best[k] = better ? part[k] : best[k], at[k] = better ? place : at[k];
          }
        });
      }
      T* y = static_cast<T*>(p.y) + roi.region * p.y_steps[0] + own.channel * p.y_steps[1] + i * p.y_steps[2] +
             j * p.y_steps[3];
#pragma unroll
      for (int k = 0; k < N; ++k, y += p.y_steps[1]) {
        if (k < own.many) *y = from_acc<T>(best[k]);
      }
      if (p.argmax == nullptr) continue;
      i64 to = roi.region * p.argmax_steps[0] + own.channel * p.argmax_steps[1] + i * p.argmax_steps[2] +
               j * p.argmax_steps[3];
#pragma unroll
      for (int k = 0; k < N; ++k, to += p.argmax_steps[1]) {
        if (k >= own.many) continue;
        if (p.wide) static_cast<i64*>(p.argmax)[to] = at[k];
        else static_cast<i32*>(p.argmax)[to] = at[k];
      }
    }
    __syncthreads();
  }
}

}  // namespace baracuda
