// roi_align_tiles   roi_align_backward by tiles: dx[n, c, y, x] = the sum over regions and their bins of what they sample
//                   of the place times dy. Schedule roi_tiles, whose order is that of regions, rows and columns of bins.
#include "image/roi.cuh"
#include "image/roi_tiles.cuh"

namespace baracuda {

// The mean's divisor is in the weights of rows.
struct AlignedRegion : Roi {
  AlignedRegion() = default;
  template <class P, class T> BARACUDA_D AlignedRegion(const P& p, const T* rois, i64 k) : Roi(p, rois, k) {}
  template <class P> BARACUDA_D bool reaches(const P&, int a, i64 first, i64 last, i64 low, i64 high) const {
    return (a == 0 ? y : x).reaches(first, last, low, high);
  }
  template <class P> BARACUDA_D double share(const P&, int a, i64 bin, i64 place) const {
    return a == 0 ? y.weight(bin, place) / count() : x.weight(bin, place);
  }
};

template <class T, int N, bool TOGETHER> BARACUDA_D void roi_align_tiles(const RoiAlignTilesParams& p) {
  using A = acc_t<T>;
  const T* const dy = static_cast<const T*>(p.dy);
  roi_tiles<AlignedRegion, T, N, TOGETHER>(p, [&](A(&sum)[N], A w, i64 region, int i, int j, i64 channel, int count) {
    each_channel<N, TOGETHER>(dy + bin_offset(p.dy_steps, region, i, j, channel), p.dy_steps[1], count,
                              [&](int k, A v) { sum[k] = math::fma(w, v, sum[k]); });
  });
}

}  // namespace baracuda
