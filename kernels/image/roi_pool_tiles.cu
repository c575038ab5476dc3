// roi_pool_tiles   roi_pool_backward by tiles: dx[n, c, y, x] = the sum of dy over the bins of image n's regions whose
//                  maximum is there. Schedule roi_tiles, whose order is that of regions, rows and columns of bins.
#include "image/roi_bins.cuh"
#include "image/roi_tiles.cuh"

namespace baracuda {

// A bin has a place or has it not.
struct MaximumRegion : TiledPool {
  MaximumRegion() = default;
  template <class P, class T> BARACUDA_D MaximumRegion(const P& p, const T* rois, i64 k) : TiledPool(p, rois, k) {}
  template <class P> BARACUDA_D double share(const P& p, int a, int bin, i64 place) const {
    return length(p, a, bin, place) != 0 ? 1.0 : 0.0;
  }
};

// dy is read only where its maximum is the thread's place.
template <class T, int N, bool TOGETHER> BARACUDA_D void roi_pool_tiles(const RoiPoolTilesParams& p) {
  using A = acc_t<T>;
  static_assert(N <= 32, "a bit for each channel");
  const T* const dy = static_cast<const T*>(p.dy);
  const RoiTile tile(p, N);
  const i64 own = (tile.low[0] + threadIdx.x / warp_size) * p.places[1] + tile.low[1] + lane_id();
  roi_tiles<MaximumRegion, T, N, TOGETHER>(p, [&](A(&sum)[N], A, i64 region, int i, int j, i64 channel, int count) {
    const i64 at = bin_offset(p.argmax_steps, region, i, j, channel);
    u32 here = 0;
    const auto compare = [&](auto places) {
      each_channel<N, false>(places + at, p.argmax_steps[1], count,
                             [&](int k, auto place) { here |= static_cast<u32>(place == own) << k; });
    };
    if (p.wide) compare(static_cast<const i64*>(p.argmax));
    else compare(static_cast<const i32*>(p.argmax));
    if (here == 0) return;
    const T* x = dy + bin_offset(p.dy_steps, region, i, j, channel);
#pragma unroll
    for (int k = 0; k < N; ++k, x += p.dy_steps[1]) {
      if (here >> k & 1) sum[k] += to_acc(*x);
    }
  });
}

}  // namespace baracuda
