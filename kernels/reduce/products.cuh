#pragma once
// products   a product of floats that no partial product takes out of the range, in any order.
#include <baracuda/math.cuh>

namespace baracuda::kinds {

// (hi + lo) 2^(800 steps) is the product of n floats to n^2 2^-105 (Ogita, Rump and Oishi 2005), so that the result is
// rounded once. |hi| is in [2^-400, 2^400], so that two of them multiply in range and what they lack is a number; or hi is
// the product itself where that is 0, infinite or NaN.
struct Product {
  double hi, lo;
  i64 steps;

  static BARACUDA_D Product of(double x) { return scaled(x, 0.0, 0); }
  static BARACUDA_D Product of(float x) { return {static_cast<double>(x), 0.0, 0}; }
  static BARACUDA_D Product merge(const Product& a, const Product& b) {
    const double hi = a.hi * b.hi;
    const double lo = math::fma(a.hi, b.lo, math::fma(a.lo, b.hi, math::fma(a.hi, b.hi, -hi)));
    return scaled(hi, lo, a.steps + b.steps);
  }
  // From (2^400, 2^1024) or (0, 2^-400) one step leads back.
  static BARACUDA_D Product scaled(double hi, double lo, i64 steps) {
    const double size = math::abs(hi);
    if (size > 0x1p+400) return {hi * 0x1p-800, lo * 0x1p-800, steps + 1};
    if (size < 0x1p-400) return {hi * 0x1p+800, lo * 0x1p+800, steps - 1};
    return {hi, lo, steps};
  }
  // As a double, rounded once; where it is subnormal hi + lo is rounded before, which takes it to 0.75 ulp.
  BARACUDA_D double value() const {
    if (hi == 0 || !math::isfinite(hi)) return hi;  // beyond an infinity lo is NaN
    return shifted(hi + lo, steps);
  }
  // x 2^(800 steps), |x| in [2^-800, 2^800]: from three steps on it is infinite, or 0.
  static BARACUDA_D double shifted(double x, i64 steps) {
    const double by = steps > 0 ? 0x1p+800 : 0x1p-800;
    const int count = static_cast<int>(min<i64>(steps > 0 ? steps : -steps, 3));
    for (int k = 0; k < count; ++k) x *= by;
    return x;
  }
};

}  // namespace baracuda::kinds
