// ps_roi_pool_backward_planes   ps_roi_pool_backward of planes in shared memory: dx[n, channel of a bin, y, x] = the sum of
//                               dy / area over image n's regions whose bin has (y, x). Schedule roi_planes.
//
// A block has one bin of an image, a warp the plane of one of its channels: it adds to all places of a region's bin at once,
// region by region, in their order.
#include "image/roi_planes.cuh"

namespace baracuda {

template <class T> BARACUDA_D void ps_roi_pool_backward_planes(const PsRoiPoolBackwardPlanesParams& p) {
  using A = acc_t<T>;
  BARACUDA_DYNAMIC_SMEM(A, planes);
  __shared__ RoiList<ListedBin> list;
  const RoiOwner own(p, p.each);
  const int lane = lane_id(), warp = static_cast<int>(threadIdx.x) / warp_size;
  const int places = static_cast<int>(p.height * p.width), width = static_cast<int>(p.width);
  const bool has = warp < own.many;
  A* const plane = planes + (has ? warp : 0) * places;
  if (has) {
    for (int k = lane; k < places; k += warp_size) plane[k] = A(0);
  }
  const T* const dy = static_cast<const T*>(p.dy) + (own.channel + warp) * p.y_steps[1] + own.bin[0] * p.y_steps[2] +
                      own.bin[1] * p.y_steps[3];
  const float column = static_cast<float>(lane) + 0.5f;
#pragma unroll 1
  for (i64 start = 0; start < p.regions; start += roi_window) {
    const int many = list.find(start, p.regions, [&](i64 region, ListedBin& entry) {
      const PooledRoi roi(p, static_cast<const T*>(p.rois), region);
      entry.keep(p, region, roi, own.bin);
      return roi.image == own.image && entry.rows * entry.columns > 0;
    });
    // A lane reads one of the next 32 regions.
    const auto fetch = [&](int at, ListedBin& bin) {
      bin = list.entries[min(at, many - 1)];
      return to_acc(dy[bin.region * p.y_steps[0]]);
    };
    ListedBin next{};
    A ahead = A(0);
    if (has && many > 0) ahead = fetch(lane, next);
#pragma unroll 1
    for (int first = 0; has && first < many; first += warp_size) {
      const ListedBin bin = next;
      const A share = ahead / static_cast<A>(bin.rows * bin.columns);
      const float per_column = 1.0f / static_cast<float>(bin.columns);
      if (first + warp_size < many) ahead = fetch(first + warp_size + lane, next);
      const int some = min(warp_size, many - first);
#pragma unroll 2
      for (int r = 0; r < some; ++r) {
        const int corner = __shfl_sync(full_warp, bin.corner, r), columns = __shfl_sync(full_warp, bin.columns, r);
        const int area = columns * __shfl_sync(full_warp, bin.rows, r);
        const float per = __shfl_sync(full_warp, per_column, r);
        const A added = __shfl_sync(full_warp, share, r);
        if (area <= warp_size) {
          const int row = static_cast<int>(column * per);
          if (lane < area) plane[corner + row * (width - columns) + lane] += added;
        } else {
#pragma unroll 1
          for (int k = lane; k < area; k += warp_size) {
            plane[corner + place_row(k, per) * (width - columns) + k] += added;
          }
        }
        __syncwarp();
      }
    }
    __syncthreads();
  }
  __syncwarp();
  if (has) hand_plane(p, static_cast<T*>(p.x) + own.begin(p) + warp * p.groups * p.x_steps[1], plane, lane, warp_size);
}

}  // namespace baracuda
