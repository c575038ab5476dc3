#pragma once
// hypergeometric     Kummer's function M(a, b, x) = 1F1 by its power series in pairs of doubles.
//
// For x < 0 it is exp(x) M(b - a, b, -x), whose terms do not alternate for 0 <= a <= b. Where terms do and cancel by more
// than 2^40, which is more than pairs make good, the result is NaN.
#include "elementwise/twofold.cuh"

namespace baracuda::special {

constexpr double kummer_reach = 5000.0;  // of |x|: terms are about twice as many
constexpr double kummer_most = 65536.0;
constexpr int kummer_beyond = 3;  // steps of 2^512 that no double holds
constexpr int kummer_far = 20;    // those that exp(-5000) does not bring back

// M(a, b, x), where b is none of 0, -1, -2, …; sums beyond 2^500 are kept 2^512 times smaller, `scale` times. A sum that
// leaves the range for good ends there: terms of one sign make it infinite, others are not known.
BARACUDA_D double kummer(Twofold a, const Twofold& b, double x) {
  const bool turned = x < 0.0;
  if (turned) a = plus(b, {-a.hi, -a.lo});
  const Twofold z{math::abs(x), 0.0};
  Twofold sum{1.0, 0.0}, term{1.0, 0.0};
  double top = 1.0, k = 0.0;
  int scale = 0;
  bool done = false, lost = false;
#pragma unroll 1
  for (; !done && !lost && k < kummer_most; k += 1.0) {
    const Twofold from = plus(a, {k, 0.0}), to = plus(b, {k, 0.0});
    const Twofold ratio = over(times(from, z), times(to, {k + 1.0, 0.0}));
    term = times(term, ratio);
    sum = plus(sum, term);
    double size = math::abs(term.hi);
    top = max(top, size);
    if (size > 0x1p500) {
      term = scaled(term, 0x1p-512), sum = scaled(sum, 0x1p-512), top *= 0x1p-512, size *= 0x1p-512, ++scale;
    }
    const bool grows = from.hi > 0.0 && to.hi > 0.0, steady = grows && math::abs(ratio.hi) < 0.5;
    lost = scale >= (grows && !turned ? kummer_beyond : kummer_far);
    if (lost && grows && term.hi * sum.hi > 0.0) return math::copysign(numeric<double>::infinity(), sum.hi);
    done = size == 0.0 || (steady && size <= max(0x1p-64 * math::abs(sum.hi), 0x1p-120 * top));
  }
  if (!done || !(math::abs(sum.hi) >= 0x1p-40 * top)) return numeric<double>::nan();
  double y = sum.hi;
  if (!turned) {
#pragma unroll 1
    for (; scale > 0 && math::isfinite(y); --scale) y *= 0x1p512;
    return y;
  }
  // exp(x + scale log(2^512)), the log in two parts of which the first times `scale` is exact.
  const double steps = scale;
  const Twofold power = plus(sum_of(steps * 0x1.62e42fep+8, x), {steps * 0x1.f473de6af278fp-21, 0.0});
  y = math::fma(y, power.lo, y);
  const double root = math::exp(0.5 * power.hi);
  return y * root * root;
}

BARACUDA_D double kummer_at(const Twofold& a, const Twofold& b, double x) {
  if (!math::isfinite(a.hi) || !math::isfinite(b.hi) || !(math::abs(x) <= kummer_reach)) return numeric<double>::nan();
  if (b.hi <= 0.0 && b.lo == 0.0 && b.hi == math::floor(b.hi)) return numeric<double>::nan();
  return kummer(a, b, x);
}
BARACUDA_SPECIAL double hyp1f1(double x, double a, double b) { return kummer_at({a, 0.0}, {b, 0.0}, x); }

// dy a / b M(a + 1, b + 1, x); the function of b = -1, which has no value, is not asked for.
BARACUDA_SPECIAL double hyp1f1_slope(double dy, double x, double a, double b) {
  const bool pole = b <= 0.0 && b == math::floor(b);
  return pole ? numeric<double>::nan() : dy * (a / b) * kummer_at(sum_of(a, 1.0), sum_of(b, 1.0), x);
}

}  // namespace baracuda::special

namespace baracuda {
BARACUDA_TRIPLE(Hyp1f1, hyp1f1(a, b, c))

namespace partial {

BARACUDA_PARTIAL_BY_A(Hyp1f1, hyp1f1_slope(dy, a, b, c))

}  // namespace partial
}  // namespace baracuda
