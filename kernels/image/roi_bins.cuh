#pragma once
// roi_bins   the places of an image that the bins of a region have; ops/image/roi_pool.py has the same formulas.
#include <baracuda/math.cuh>
#include <baracuda/planes.cuh>
#include <baracuda/positions.cuh>

namespace baracuda {

// Axes: 0 rows, 1 columns. A region that is not finite, or far away, has no image.
struct PooledRoi {
  i64 image;  // -1 where there is none of that number
  i32 start[2], size[2];

  PooledRoi() = default;
  template <class P, class T> BARACUDA_D PooledRoi(const P& p, const T* rois, i64 k) {
    const auto at = [&](int i) { return static_cast<double>(to_acc(rois[k * p.roi_steps[0] + i * p.roi_steps[1]])); };
    const double number = at(0);
    bool known = number >= 0.0 && number < static_cast<double>(p.images);
#pragma unroll
    for (int a = 0; a < 2; ++a) {
      const double first = math::round(at(2 - a) * p.scale), last = math::round(at(4 - a) * p.scale);
      known = known && math::abs(first) <= roi_far && math::abs(last) <= roi_far;
      start[a] = known ? static_cast<i32>(first) : 0;
      size[a] = known ? max(static_cast<i32>(last) - start[a] + p.closed, 1) : 0;
    }
    image = known ? static_cast<i64>(number) : -1;
  }
  template <class P> static BARACUDA_D i64 within(const P& p, int a, i64 place) {
    return min(max<i64>(place, 0), p.limits[a]);
  }
  template <class P> BARACUDA_D i64 behind(const P& p, int a, i64 scaled) const {
    u64 rest;
    return within(p, a,
                  start[a] + static_cast<i64>(divmod(static_cast<u64>(scaled), static_cast<u64>(p.bins[a]), rest)));
  }
  template <class P> BARACUDA_D i64 low(const P& p, int a, i64 bin) const { return behind(p, a, bin * size[a]); }
  template <class P> BARACUDA_D i64 high(const P& p, int a, i64 bin) const {
    return behind(p, a, (bin + 1) * size[a] + p.bins[a] - 1);
  }
  template <class P> BARACUDA_D bool reaches(const P& p, int a, i64 place) const {
    return place >= start[a] && place < start[a] + size[a] && place < p.limits[a];
  }
  template <class P> BARACUDA_D bool has(const P& p, int a, i64 bin, i64 place) const {
    return place >= low(p, a, bin) && place < high(p, a, bin);
  }
};

// For roi_tiles: of few bins, whose places are found in 32 bits.
struct TiledPool : PooledRoi {
  TiledPool() = default;
  template <class P, class T> BARACUDA_D TiledPool(const P& p, const T* rois, i64 k) : PooledRoi(p, rois, k) {}
  template <class P> BARACUDA_D i64 low(const P& p, int a, int bin) const {
    return within(p, a, start[a] + static_cast<i32>(static_cast<u32>(bin * size[a]) / static_cast<u32>(p.bins[a])));
  }
  template <class P> BARACUDA_D i64 high(const P& p, int a, int bin) const {
    const u32 bins = static_cast<u32>(p.bins[a]);
    return within(p, a, start[a] + static_cast<i32>((static_cast<u32>((bin + 1) * size[a]) + bins - 1) / bins));
  }
  template <class P> BARACUDA_D bool reaches(const P& p, int a, int first, int last, i64 from, i64 to) const {
    return low(p, a, first) <= to && high(p, a, last - 1) > from;
  }
  // How many places along an axis the bin has, if it has this one.
  template <class P> BARACUDA_D i64 length(const P& p, int a, int bin, i64 place) const {
    const i64 from = low(p, a, bin), to = high(p, a, bin);
    return place >= from && place < to ? to - from : 0;
  }
};

}  // namespace baracuda
