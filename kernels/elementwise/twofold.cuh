#pragma once
// twofold    numbers as the unrounded sum of two doubles, for series whose terms cancel.
#include "elementwise/pairs.cuh"

namespace baracuda::special {

struct Twofold {  // hi + lo, the sum not rounded
  double hi, lo;
};
BARACUDA_D Twofold sum_of(double a, double b) {  // Knuth 1969
  const double s = a + b, part = s - a;
  return {s, (a - (s - part)) + (b - part)};
}
BARACUDA_D Twofold renewed(double hi, double lo) {  // Dekker 1971, |hi| >= |lo|
  const double s = hi + lo;
  return {s, lo - (s - hi)};
}
BARACUDA_D Twofold plus(const Twofold& a, const Twofold& b) {
  const Twofold s = sum_of(a.hi, b.hi);
  return renewed(s.hi, s.lo + (a.lo + b.lo));
}
BARACUDA_D Twofold times(const Twofold& a, const Twofold& b) {
  const double p = a.hi * b.hi;
  return renewed(p, math::fma(a.hi, b.hi, -p) + math::fma(a.hi, b.lo, a.lo * b.hi));
}
BARACUDA_D Twofold over(const Twofold& a, const Twofold& b) {
  const double q = a.hi / b.hi;
  return renewed(q, (math::fma(-q, b.hi, a.hi) + math::fma(-q, b.lo, a.lo)) / b.hi);
}
BARACUDA_D Twofold scaled(const Twofold& a, double by) { return {a.hi * by, a.lo * by}; }

}  // namespace baracuda::special
