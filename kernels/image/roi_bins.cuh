#pragma once
// roi_bins   the places of an image that the bins of a region have; ops/image/roi_pool.py has the same formulas.
#include <baracuda/math.cuh>
#include <baracuda/planes.cuh>
#include <baracuda/positions.cuh>

namespace baracuda {

// Axes: 0 rows, 1 columns. A region that is not finite, or far away, has no image.
template <class P> struct PooledRoi {
  const P& p;
  i64 image;  // -1 where there is none of that number
  i32 start[2], size[2];

  template <class T> BARACUDA_D PooledRoi(const P& p, const T* rois, i64 k) : p(p) {
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
  BARACUDA_D i64 within(int a, i64 place) const { return min(max<i64>(place, 0), p.limits[a]); }
  BARACUDA_D i64 low(int a, i64 bin) const { return within(a, start[a] + bin * size[a] / p.bins[a]); }
  BARACUDA_D i64 high(int a, i64 bin) const {
    return within(a, start[a] + ((bin + 1) * size[a] + p.bins[a] - 1) / p.bins[a]);
  }
  BARACUDA_D bool reaches(int a, i64 place) const {
    return place >= start[a] && place < start[a] + size[a] && place < p.limits[a];
  }
  BARACUDA_D bool has(int a, i64 bin, i64 place) const { return place >= low(a, bin) && place < high(a, bin); }
};

}  // namespace baracuda
