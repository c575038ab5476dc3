#pragma once
// norms  gradients of norms: 0 where the norm is 0.
#include "reduce/gradients/directions.cuh"
#include "reduce/norms.cuh"

namespace baracuda {

namespace kinds {

template <class T> struct PowersOf : PNorm<T> {  // the norm is top sum^(1 / p), which the element may not hold
  using Result = Powers;
  static BARACUDA_D Result finish(Powers s, const Reduced&) { return s; }
  static BARACUDA_D double norm(const Powers& s) { return s.sum == 0 ? 0.0 : s.top * math::pow(s.sum, 1.0 / s.p); }
};

}  // namespace kinds

// In double: x / y may be subnormal in float where the product is not.
template <class T> struct Gradient<kinds::L2Norm<T>> {
  static constexpr int reads = reads_dy | reads_x | reads_y;
  using Statistic = Nothing;
  double dy, y;
  template <class Row> BARACUDA_D Gradient(const Row& row, const GradientFacts&) : dy(row.dy), y(row.y) {}
  BARACUDA_D double operator()(acc_t<T> x, i64) const { return y == 0 ? 0.0 : times_share(dy, x, y); }
};

// dy (x / y)^power for magnitudes x > 0 and y whose quotient may be subnormal, or 0, where the power is in range: 2^1080
// makes every such quotient normal.
BARACUDA_D double power_of_ratio(double dy, double x, double y, double power) {
  if (math::isinf(dy) && math::isfinite(x) && math::isfinite(y)) return dy;  // no power is 0, however small
  const double ratio = x / y;
  if (!(ratio < 0x1p-1022) || math::isinf(y)) return dy * math::pow(ratio, power);
  const double step = math::exp2(-540.0 * power);
  return dy * step * math::pow((x * 0x1p540) / (y * 0x1p-540), power) * step;
}

// The power would multiply the rounding of y: the norm is found anew.
template <class T> struct Gradient<kinds::PNorm<T>> {
  static constexpr int reads = reads_dy | reads_x | reads_statistic;
  using Statistic = kinds::PowersOf<T>;
  double dy, y, power;
  template <class Row>
  BARACUDA_D Gradient(const Row& row, const GradientFacts& facts)
      : dy(row.dy), y(Statistic::norm(row.statistic)), power(facts.option - 1) {}
  BARACUDA_D double operator()(acc_t<T> value, i64) const {
    const double x = static_cast<double>(value);
    if (x == 0 || y == 0) return 0.0;
    return power_of_ratio(x < 0 ? -dy : dy, math::abs(x), y, power);
  }
};

template <class R> struct Gradient<kinds::L2Norm<complex<R>>> {
  static constexpr int reads = reads_dy | reads_x | reads_y;
  using Given = R;
  using Statistic = Nothing;
  double dy, y;
  template <class Row> BARACUDA_D Gradient(const Row& row, const GradientFacts&) : dy(row.dy), y(row.y) {}
  BARACUDA_D complex<double> operator()(complex<R> z, i64) const {
    if (y == 0) return 0.0;
    return {times_share(dy, z.re, y), times_share(dy, z.im, y)};
  }
};

template <class R> struct Gradient<kinds::PNorm<complex<R>>> {
  static constexpr int reads = reads_dy | reads_x | reads_statistic;
  using Given = R;
  using Statistic = kinds::PowersOf<complex<R>>;
  double dy, y, power;
  template <class Row>
  BARACUDA_D Gradient(const Row& row, const GradientFacts& facts)
      : dy(row.dy), y(Statistic::norm(row.statistic)), power(facts.option - 1) {}
  BARACUDA_D complex<double> operator()(complex<R> value, i64) const {
    const complex<double> z = in_double(value);
    const double size = math::hypot(z.re, z.im);
    if (size == 0 || y == 0) return 0.0;
    if (math::isinf(size)) return directed(z, power_of_ratio(dy, math::hypot(0.5 * z.re, 0.5 * z.im), 0.5 * y, power));
    return directed(z, power_of_ratio(dy, size, y, power));
  }
};

}  // namespace baracuda
