// ps_roi_pool_tiles   ps_roi_pool_backward by tiles: dx[n, channel of a bin, y, x] = the sum of dy / area over image n's
//                     regions whose bin has (y, x). Schedule roi_tiles, whose order is that of regions.
#include "image/roi_bins.cuh"
#include "image/roi_tiles.cuh"

namespace baracuda {

// The weight of a place along an axis is how many of them the bin has.
struct MeanRegion : TiledPool {
  MeanRegion() = default;
  template <class P, class T> BARACUDA_D MeanRegion(const P& p, const T* rois, i64 k) : TiledPool(p, rois, k) {}
  template <class P> BARACUDA_D double share(const P& p, int a, int bin, i64 place) const {
    return static_cast<double>(length(p, a, bin, place));
  }
};

template <class T, int N, bool TOGETHER> BARACUDA_D void ps_roi_pool_tiles(const PsRoiPoolTilesParams& p) {
  using A = acc_t<T>;
  const T* const dy = static_cast<const T*>(p.dy);
  roi_tiles<MeanRegion, T, N, TOGETHER>(p, [&](A(&sum)[N], A area, i64 region, int i, int j, i64 channel, int count) {
    each_channel<N, TOGETHER>(dy + bin_offset(p.dy_steps, region, i, j, channel), p.dy_steps[1], count,
                              [&](int k, A v) { sum[k] += v / area; });
  });
}

}  // namespace baracuda
