#pragma once
// resample   the weights by which places of one axis of an image make those of another, in f64; ops/image/resample.py
//            has the same formulas in NumPy, operation by operation.
#include <baracuda/math.cuh>
#include <baracuda/types.cuh>

namespace baracuda {

// Along one axis output o is the sum of weight(at(o), i) x[i] over i in [first, last] of at(o).
template <Resample MODE> struct ResampleAxis {
  static constexpr Resample mode = MODE;
  static constexpr bool picks = MODE == Resample::nearest || MODE == Resample::nearest_exact;
  i64 in, out;
  double scale, shift, widened;  // of coordinates, and of the filter (1: as it is)
  bool align, bounded;

  struct At {
    double c, norm;
    i64 first, last;
  };

  template <class P>
  BARACUDA_D ResampleAxis(const P& p, int a)
      : in(p.in_extent[a]), out(p.out_extent[a]), scale(p.scale[a]), shift(p.shift[a]), widened(p.widened[a]),
        align(p.align_corners), bounded(p.zero_outside) {}

  static constexpr double radius = MODE == Resample::triangle   ? 1.0
                                   : MODE == Resample::keys     ? 2.0
                                   : MODE == Resample::lanczos3 ? 3.0
                                                                : 5.0;
  static BARACUDA_D double filter(double x) {
    if constexpr (MODE == Resample::triangle) {
      return x < 1.0 ? 1.0 - x : 0.0;
    } else if constexpr (MODE == Resample::keys) {
      return x < 1.0 ? (1.5 * x - 2.5) * x * x + 1.0 : x < 2.0 ? ((-0.5 * x + 2.5) * x - 4.0) * x + 2.0 : 0.0;
    } else {
      constexpr double pi = 3.141592653589793;
      const double y = pi * x;
      const double curve = radius * math::sinpi(x) * math::sinpi(x / radius) / (y * y);
      return x < radius ? x > 1e-3 ? curve : 1.0 : 0.0;
    }
  }
  // Keys' weights with a = -0.75, of the taps t - 1, t, t + 1 and t + 2 places away: torch's bicubic.
  static BARACUDA_D double cubic(double t, int k) {
    constexpr double a = -0.75;
    const double x = k == 0 ? t + 1.0 : k == 1 ? t : k == 2 ? 1.0 - t : 2.0 - t;
    return k == 1 || k == 2 ? ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
                            : ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a;
  }
  BARACUDA_D double inside(double x) const { return x < 0.0 ? 0.0 : x > static_cast<double>(in - 1) ? in - 1 : x; }
  BARACUDA_D double coordinate(i64 o) const {
    return align ? static_cast<double>(o) * scale : scale * (static_cast<double>(o) + 0.5) + shift - 0.5;
  }

  BARACUDA_D At bounds(i64 o) const {
    At at{0.0, 1.0, 0, 0};
    if constexpr (picks) {
      const float place = static_cast<float>(o) + (mode == Resample::nearest ? 0.0f : 0.5f);
      at.first = at.last = min(static_cast<i64>(math::floor(place * static_cast<float>(scale))), in - 1);
    } else if constexpr (mode == Resample::linear) {
      at.c = inside(coordinate(o));
      at.first = static_cast<i64>(math::floor(at.c));
      at.last = min(at.first + 1, in - 1);
    } else if constexpr (mode == Resample::cubic) {
      at.c = coordinate(o);
      at.first = static_cast<i64>(inside(math::floor(at.c) - 1.0));
      at.last = static_cast<i64>(inside(math::floor(at.c) + 2.0));
    } else if constexpr (mode == Resample::area) {
      at.first = static_cast<i64>(static_cast<u64>(o * in) / static_cast<u64>(out));
      at.last = static_cast<i64>(static_cast<u64>((o + 1) * in + out - 1) / static_cast<u64>(out)) - 1;
      at.norm = static_cast<double>(at.last - at.first + 1);
    } else {
      at.c = coordinate(o);
      at.first = static_cast<i64>(inside(math::ceil(at.c - radius * widened)));
      at.last = static_cast<i64>(inside(math::floor(at.c + radius * widened)));
    }
    return at;
  }
  BARACUDA_D At at(i64 o) const {
    At found = bounds(o);
    if constexpr (mode < Resample::triangle) return found;
    double sum = 0.0;
#pragma unroll 1
    for (i64 i = found.first; i <= found.last; ++i)
      sum += filter(math::abs(found.c - static_cast<double>(i)) / widened);
    const bool there = !bounded || (found.c >= -0.5 && found.c <= static_cast<double>(in) - 0.5);
    found.norm = there && math::abs(sum) > 1e-4 ? sum : numeric<double>::infinity();
    return found;
  }
  BARACUDA_D double weight(const At& at, i64 i) const {
    if constexpr (picks) {
      return 1.0;
    } else if constexpr (mode == Resample::linear) {
      const double t = at.c - static_cast<double>(at.first);
      return at.first == at.last ? 1.0 : i == at.first ? 1.0 - t : t;
    } else if constexpr (mode == Resample::cubic) {
      const double floor = math::floor(at.c), t = at.c - floor;
      double sum = 0.0;
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        if (static_cast<i64>(inside(floor + static_cast<double>(k - 1))) == i) sum += cubic(t, k);
      }
      return sum;
    } else if constexpr (mode == Resample::area) {
      return 1.0 / at.norm;
    } else {
      return filter(math::abs(at.c - static_cast<double>(i)) / widened) / at.norm;
    }
  }
  // The first output that reads i or an input behind it, or (past) the first that reads only inputs behind it: bounds
  // never decrease with o.
  BARACUDA_D i64 reader(i64 i, bool past) const {
    i64 low = 0, high = out;
#pragma unroll 1
    while (low < high) {
      const i64 middle = (low + high) / 2;
      const At found = bounds(middle);
      if (past ? found.first > i : found.last >= i) high = middle;
      else low = middle + 1;
    }
    return low;
  }
};

}  // namespace baracuda
