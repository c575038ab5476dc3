#pragma once
// spread  gradients of variances and standard deviations: deviations from the mean, in double.
#include "reduce/gradients.cuh"
#include "reduce/spread.cuh"

namespace baracuda {

namespace kinds {

template <class V> struct SpreadOf : V {  // of MeanSpread or Nanvar
  using Result = Spread;
  static BARACUDA_D Result finish(Spread s, const Reduced&) { return s; }
};

// The mean as base + offset, part by part, as a variance of real numbers has it: of equal elements it is one of them. Of
// numbers beyond 1e53 the offset is lost.
struct ComplexMean {
  complex<double> base;
  complex<float> offset;
  double n;
};
template <class R> struct MeanOf {
  using State = ComplexMean;
  using Result = State;
  static BARACUDA_D complex<R> fill() { return R(0); }
  static BARACUDA_D State empty() { return {0.0, 0.0f, 0.0}; }
  static BARACUDA_D Spread part(double base, float offset, double n) { return {base, offset, 0.0, n}; }
  static BARACUDA_D float kept(double offset) {
    const float f = static_cast<float>(offset);
    return math::isfinite(f) ? f : 0.0f;
  }
  static BARACUDA_D State merge(const State& a, const State& b) {
    using Parts = MeanSpread<double>;
    const Spread re = Parts::merge(part(a.base.re, a.offset.re, a.n), part(b.base.re, b.offset.re, b.n));
    const Spread im = Parts::merge(part(a.base.im, a.offset.im, a.n), part(b.base.im, b.offset.im, b.n));
    return {{re.base, im.base}, {kept(re.offset), kept(im.offset)}, re.n};
  }
  static BARACUDA_D Result finish(const State& s, const Reduced&) { return s; }

  // Differences from the first element, or from 0 where that is not finite; of doubles 256ths, so that none overflows.
  struct Lane {
    static constexpr double unit = is_same<R, double> ? 0x1p-8 : 1.0;
    complex<double> base = 0.0, sum = 0.0;
    double n = 0;
    template <int V> BARACUDA_D void add(const Vec<complex<R>, V>& z, i64 left, i64) {
      if (n == 0 && math::isfinite(z[0])) base = cast<complex<double>>(z[0]);
#pragma unroll
      for (int k = 0; k < V; ++k) {
        if (k < left) {
          sum.re += static_cast<double>(z[k].re) * unit - base.re * unit;
          sum.im += static_cast<double>(z[k].im) * unit - base.im * unit;
        }
      }
      n += static_cast<double>(left < V ? static_cast<int>(left) : V);
    }
    BARACUDA_D Spread mean(double base, double share) const {
      const double offset = share / unit;
      return math::isfinite(offset) ? spread_of(base, offset, 0.0, n) : part((base * unit + share) / unit, 0.0f, n);
    }
    BARACUDA_D State state() const {
      if (n == 0) return empty();
      const Spread re = mean(base.re, sum.re / n), im = mean(base.im, sum.im / n);
      return {{re.base, im.base}, {kept(re.offset), kept(im.offset)}, n};
    }
  };
};

}  // namespace kinds

// dy factor (x - base - offset), and over 2 y where y is the root of what that is the gradient of: the quotient first, which
// is small, so that nothing leaves the range unless the product does. No deviation up to `lost` in size has a sign.
struct Deviation {
  double dy, factor, y, inverse;  // inverse: 1 / (2 y), or 0 where that has few digits or none
  double lost = -1.0;
  BARACUDA_D Deviation(double dy, double factor) : dy(dy), factor(factor), y(0.5), inverse(1.0) {}
  BARACUDA_D Deviation(double dy, double factor, double root)
      : dy(root == 0 ? 0.0 : dy), factor(factor), y(root), inverse(math::abs(root) > 1e-290 ? 0.5 / root : 0.0) {}
  BARACUDA_D double operator()(double x, double base, double offset) const {
    double d = (x - base) - offset, by = factor;
    if (!math::isfinite(d) && math::isfinite(x) && math::isfinite(base)) {
      d = (0.5 * x - 0.5 * base) - 0.5 * offset, by = 2.0 * factor;
    }
    if (!(math::abs(d) > lost)) return numeric<double>::nan();
    if (y == 0) return dy * d;
    return dy * (inverse == 0.0 ? d / (2.0 * y) * by : d * by * inverse);
  }
};

// The same of 16-bit floats, in float: the halves of x and of the mean, as their difference may leave the range, times
// the slope 2^power. power is 0 unless the slope may leave the range; then the product is made in double. What the mean
// is rounded by would decide between an infinity and NaN, which is NaN.
struct ShortDeviation {
  float slope, base, offset, shift;  // base and offset: half the mean and what that lacks
  float lost;                        // no deviation of up to twice this has a sign; set where the slope is infinite
  int power;
  BARACUDA_D ShortDeviation(double by, double mean_base, double mean_offset, double m2, double shift)
      : base(0.5f * static_cast<float>(mean_base)), shift(static_cast<float>(shift)), lost(-1.0f), power(0) {
    const double lacks = (0.5 * mean_base - static_cast<double>(base)) + 0.5 * mean_offset;
    offset = math::isfinite(lacks) ? static_cast<float>(lacks) : 0.0f;
    by *= 2.0;
    const double size = math::abs(by);
    if (!(size > 0x1p-100 && size < 0x1p+100) && math::isfinite(by) && by != 0) {
      power = (__double2hiint(size) >> 20) - 1023;
      by *= two_to(-power);
    } else if (math::isinf(by)) {
      power = unbounded;
      lost = static_cast<float>(0x1p-45 * math::sqrt(m2));
    }
    slope = static_cast<float>(by);
  }
  static constexpr int unbounded = 1 << 20;
  static BARACUDA_D double two_to(int power) { return __hiloint2double((1023 + power) << 20, 0); }
  BARACUDA_D float operator()(float x) const {
    const float d = math::fma(0.5f, x, -base) - offset;
    if (power == 0) return math::fma(slope, d, shift);
    if (power == unbounded) return math::abs(d) > lost ? math::fma(slope, d, shift) : numeric<float>::nan();
    return static_cast<float>(static_cast<double>(d) * static_cast<double>(slope) * two_to(power) + shift);
  }
};

// ROOT: y is the square root, which has no slope at 0: 0, as PyTorch says. MEAN: dz is the gradient of the mean.
template <class T, bool ROOT, bool MEAN, bool SKIPS_NAN> struct Deviations {
  static constexpr int reads = reads_dy | reads_x | reads_statistic | (ROOT ? reads_y : 0) | (MEAN ? reads_dz : 0);
  using Statistic = kinds::SpreadOf<conditional<SKIPS_NAN, kinds::Nanvar<T>, kinds::MeanSpread<T>>>;
  Deviation slope;
  double base, offset, shift;
  template <class Row>
  BARACUDA_D Deviations(const Row& row, const GradientFacts& facts)
      : slope(of(row, factor(row, facts))), base(row.statistic.base), offset(row.statistic.offset), shift(0) {
    // What the mean is rounded by would decide between an infinity and NaN.
    if (math::isinf(slope.dy) || math::isinf(slope.factor)) {
      slope.lost = 0x1p-44 * math::sqrt(row.statistic.m2) + 0x1p-1070;
    }
    if constexpr (MEAN) shift = row.dz / facts.count;
  }
  template <class Row> static BARACUDA_D double factor(const Row& row, const GradientFacts& facts) {
    return 2.0 / ((SKIPS_NAN ? row.statistic.n : facts.count) - facts.option);
  }
  template <class Row> static BARACUDA_D Deviation of(const Row& row, double factor) {
    if constexpr (ROOT) return Deviation(row.dy, factor, row.y);
    else return Deviation(row.dy, factor);
  }
  BARACUDA_D double operator()(acc_t<T> x, i64) const {
    if (SKIPS_NAN && math::isnan(x)) return 0.0;
    return slope(static_cast<double>(x), base, offset) + shift;
  }
};
template <class T, bool ROOT, bool MEAN, bool SKIPS_NAN> struct ShortDeviations {
  using Wide = Deviations<T, ROOT, MEAN, SKIPS_NAN>;
  static constexpr int reads = Wide::reads;
  using Statistic = typename Wide::Statistic;
  ShortDeviation slope;
  template <class Row>
  BARACUDA_D ShortDeviations(const Row& row, const GradientFacts& facts)
      : slope(by(row, Wide::factor(row, facts)), row.statistic.base, row.statistic.offset, row.statistic.m2,
              shift(row, facts)) {}
  template <class Row> static BARACUDA_D double by(const Row& row, double factor) {
    const double slope = row.dy * factor;
    if constexpr (ROOT) return row.y == 0 ? 0.0 : slope * (0.5 / row.y);
    else return slope;
  }
  template <class Row> static BARACUDA_D double shift(const Row& row, const GradientFacts& facts) {
    if constexpr (MEAN) return row.dz / facts.count;
    else return 0.0;
  }
  BARACUDA_D float operator()(float x, i64) const { return SKIPS_NAN && math::isnan(x) ? 0.0f : slope(x); }
};
template <class T, bool ROOT, bool MEAN, bool SKIPS_NAN>
using DeviationsOf =
    conditional<is_half<T>, ShortDeviations<T, ROOT, MEAN, SKIPS_NAN>, Deviations<T, ROOT, MEAN, SKIPS_NAN>>;

template <class T> struct Gradient<kinds::Var<T>> : DeviationsOf<T, false, false, false> {
  using Base = DeviationsOf<T, false, false, false>;
  using Base::Base;
};
template <class T> struct Gradient<kinds::Std<T>> : DeviationsOf<T, true, false, false> {
  using Base = DeviationsOf<T, true, false, false>;
  using Base::Base;
};
template <class T> struct Gradient<kinds::Nanvar<T>> : DeviationsOf<T, false, false, true> {
  using Base = DeviationsOf<T, false, false, true>;
  using Base::Base;
};
template <class T> struct Gradient<kinds::Nanstd<T>> : DeviationsOf<T, true, false, true> {
  using Base = DeviationsOf<T, true, false, true>;
  using Base::Base;
};

// ROOT: y is the square root, which has no slope at 0: 0, as PyTorch says.
template <class R, bool ROOT> struct ComplexDeviations {
  static constexpr int reads = reads_dy | reads_x | reads_statistic | (ROOT ? reads_y : 0);
  using Given = R;
  using Statistic = kinds::MeanOf<R>;
  Deviation slope;
  kinds::ComplexMean mean;
  template <class Row>
  BARACUDA_D ComplexDeviations(const Row& row, const GradientFacts& facts)
      : slope(of(row, 2.0 / (facts.count - facts.option))), mean(row.statistic) {}
  template <class Row> static BARACUDA_D Deviation of(const Row& row, double factor) {
    if constexpr (ROOT) return Deviation(row.dy, factor, row.y);
    else return Deviation(row.dy, factor);
  }
  BARACUDA_D complex<double> operator()(complex<R> z, i64) const {
    return {slope(z.re, mean.base.re, mean.offset.re), slope(z.im, mean.base.im, mean.offset.im)};
  }
};
template <class R> struct Gradient<kinds::Var<complex<R>>> : ComplexDeviations<R, false> {
  using ComplexDeviations<R, false>::ComplexDeviations;
};
template <class R> struct Gradient<kinds::Std<complex<R>>> : ComplexDeviations<R, true> {
  using ComplexDeviations<R, true>::ComplexDeviations;
};

}  // namespace baracuda
