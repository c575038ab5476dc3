#pragma once
// gradients  Gradient<K>: dx of one element, from what belongs to its row and from x; K is the functor that reduced x.
//
// Made for a row, then called for each of its elements: it returns dx in the type it computes in, which is rounded once.
// `reads` says what it needs of them; Statistic is the functor of reduce/statistics.cuh whose result a row has as
// row.statistic.
#include "reduce/statistics.cuh"

namespace baracuda {

constexpr int reads_x = 1, reads_dy = 2, reads_y = 4, reads_dz = 8, reads_index = 16, reads_statistic = 32;

struct Nothing {
  struct Result {};
};

template <class A, class S> struct GradientRow {
  A dy, y, dz;
  i64 index;  // place of the element that dy goes to
  typename S::Result statistic;
};

// What holds for all rows: the elements of one, and the kind's own option (correction, order of a norm).
struct GradientFacts {
  double count, option;
};

template <class K> struct Gradient;

// ---- sums -----------------------------------------------------------------------------------------------------------

template <class T> struct Gradient<kinds::Sum<T>> {
  static constexpr int reads = reads_dy;
  using Statistic = Nothing;
  acc_t<T> dy;
  template <class Row> BARACUDA_D Gradient(const Row& row, const GradientFacts&) : dy(row.dy) {}
  BARACUDA_D acc_t<T> operator()(acc_t<T>, i64) const { return dy; }
};

template <class T> struct Gradient<kinds::Mean<T>> {
  static constexpr int reads = reads_dy;
  using Statistic = Nothing;
  acc_t<T> dy;
  template <class Row>
  BARACUDA_D Gradient(const Row& row, const GradientFacts& facts) : dy(row.dy / static_cast<acc_t<T>>(facts.count)) {}
  BARACUDA_D acc_t<T> operator()(acc_t<T>, i64) const { return dy; }
};

template <class T> struct Gradient<kinds::SumSquares<T>> {
  static constexpr int reads = reads_dy | reads_x;
  using Statistic = Nothing;
  acc_t<T> dy;
  template <class Row> BARACUDA_D Gradient(const Row& row, const GradientFacts&) : dy(row.dy) {}
  BARACUDA_D acc_t<T> operator()(acc_t<T> x, i64) const { return dy * x * acc_t<T>(2); }
};

// NaN has a factor of 0, as in PyTorch: an infinite dy is NaN there.
template <class T> struct Gradient<kinds::Nansum<T>> {
  static constexpr int reads = reads_dy | reads_x;
  using Statistic = Nothing;
  acc_t<T> dy;
  template <class Row> BARACUDA_D Gradient(const Row& row, const GradientFacts&) : dy(row.dy) {}
  BARACUDA_D acc_t<T> operator()(acc_t<T> x, i64) const { return dy * acc_t<T>(!math::isnan(x)); }
};

template <class T> struct Gradient<kinds::Nanmean<T>> {
  static constexpr int reads = reads_dy | reads_x | reads_statistic;
  using Statistic = kinds::Numbers<T>;
  acc_t<T> dy;
  template <class Row>
  BARACUDA_D Gradient(const Row& row, const GradientFacts&) : dy(row.dy / static_cast<acc_t<T>>(row.statistic)) {}
  BARACUDA_D acc_t<T> operator()(acc_t<T> x, i64) const { return dy * acc_t<T>(!math::isnan(x)); }
};

// The share exp(x - max) / sum: y, rounded to T, would be far from max + log(sum) where those are large.
template <class T> struct Gradient<kinds::Logsumexp<T>> {
  static constexpr int reads = reads_dy | reads_x | reads_statistic;
  using Statistic = kinds::Exponentials<T>;
  acc_t<T> dy, max, inverse;
  template <class Row>
  BARACUDA_D Gradient(const Row& row, const GradientFacts&)
      : dy(row.dy), max(row.statistic.max), inverse(acc_t<T>(1) / row.statistic.sum) {}
  BARACUDA_D acc_t<T> operator()(acc_t<T> x, i64) const { return dy * (math::exp(x - max) * inverse); }
};

template <class T> struct Gradient<kinds::Logmeanexp<T>> : Gradient<kinds::Logsumexp<T>> {
  using Gradient<kinds::Logsumexp<T>>::Gradient;
};

// ---- norms: 0 where the norm is 0 -----------------------------------------------------------------------------------

template <class A> BARACUDA_D A sign_of(A x) { return A(x > A(0)) - A(x < A(0)); }  // of NaN 0, as in PyTorch

template <class T> struct Gradient<kinds::L1Norm<T>> {
  static constexpr int reads = reads_dy | reads_x;
  using Statistic = Nothing;
  acc_t<T> dy;
  template <class Row> BARACUDA_D Gradient(const Row& row, const GradientFacts&) : dy(row.dy) {}
  BARACUDA_D acc_t<T> operator()(acc_t<T> x, i64) const { return dy * sign_of(x); }
};

// dy x / y for y > 0: the quotient may be subnormal, or 0, where the product is not; 2^1080 makes it normal.
BARACUDA_D double times_share(double dy, double x, double y) {
  const double ratio = x / y;
  if (!(math::abs(ratio) < 0x1p-1022) || x == 0 || math::isinf(y)) return dy * ratio;
  if (math::isinf(dy)) return x < 0 ? -dy : dy;
  return dy * 0x1p-540 * ((x * 0x1p540) / (y * 0x1p-540)) * 0x1p-540;
}

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

// ---- extremes: dy divided evenly among the elements that are it -----------------------------------------------------

// K is the extreme of x itself, or of its magnitude; it may pass NaN over.
template <class K, class T, bool MAGNITUDE = false, bool SKIPS_NAN = false> struct SharedExtreme {
  static constexpr int reads = reads_dy | reads_x | reads_statistic;
  using Statistic = kinds::TiesOf<K, T>;
  using A = acc_t<T>;
  A dy;
  kinds::Ties<A> ties;
  template <class Row>
  BARACUDA_D SharedExtreme(const Row& row, const GradientFacts&)
      : dy(row.dy / static_cast<A>(row.statistic.count)), ties(row.statistic) {}
  BARACUDA_D A operator()(A x, i64) const {
    if (!ties.has(K::leaf(x)) || (SKIPS_NAN && math::isnan(x))) return A(0);
    return MAGNITUDE ? dy * sign_of(x) : dy;
  }
};
template <class T> struct Gradient<kinds::Amax<T>> : SharedExtreme<kinds::Amax<T>, T> {
  using SharedExtreme<kinds::Amax<T>, T>::SharedExtreme;
};
template <class T> struct Gradient<kinds::Amin<T>> : SharedExtreme<kinds::Amin<T>, T> {
  using SharedExtreme<kinds::Amin<T>, T>::SharedExtreme;
};
template <class T> struct Gradient<kinds::Nanmax<T>> : SharedExtreme<kinds::Nanmax<T>, T, false, true> {
  using SharedExtreme<kinds::Nanmax<T>, T, false, true>::SharedExtreme;
};
template <class T> struct Gradient<kinds::Nanmin<T>> : SharedExtreme<kinds::Nanmin<T>, T, false, true> {
  using SharedExtreme<kinds::Nanmin<T>, T, false, true>::SharedExtreme;
};
template <class T> struct Gradient<kinds::MaxNorm<T>> : SharedExtreme<kinds::MaxNorm<T>, T, true> {
  using SharedExtreme<kinds::MaxNorm<T>, T, true>::SharedExtreme;
};
template <class T> struct Gradient<kinds::MinNorm<T>> : SharedExtreme<kinds::MinNorm<T>, T, true> {
  using SharedExtreme<kinds::MinNorm<T>, T, true>::SharedExtreme;
};

// low goes to the smallest elements, high to the largest.
template <class T> struct SharedEnds {
  static constexpr int reads = reads_dy | reads_x | reads_statistic;
  using Statistic = kinds::BothTiesOf<T>;
  using A = acc_t<T>;
  A low, high;
  typename Statistic::State ties;
  BARACUDA_D SharedEnds(A low, A high, const typename Statistic::State& ties)
      : low(low / static_cast<A>(ties.low.count)), high(high / static_cast<A>(ties.high.count)), ties(ties) {}
  BARACUDA_D A operator()(A x, i64) const { return (ties.low.has(x) ? low : A(0)) + (ties.high.has(x) ? high : A(0)); }
};
template <class T> struct Gradient<kinds::Ptp<T>> : SharedEnds<T> {
  template <class Row>
  BARACUDA_D Gradient(const Row& row, const GradientFacts&) : SharedEnds<T>(-row.dy, row.dy, row.statistic) {}
};
template <class T> struct Gradient<kinds::Aminmax<T>> : SharedEnds<T> {
  static constexpr int reads = SharedEnds<T>::reads | reads_dz;
  template <class Row>
  BARACUDA_D Gradient(const Row& row, const GradientFacts&) : SharedEnds<T>(row.dy, row.dz, row.statistic) {}
};

template <class T> struct AtIndex {
  static constexpr int reads = reads_dy | reads_index;
  using Statistic = Nothing;
  acc_t<T> dy;
  i64 index;
  template <class Row> BARACUDA_D AtIndex(const Row& row, const GradientFacts&) : dy(row.dy), index(row.index) {}
  BARACUDA_D acc_t<T> operator()(acc_t<T>, i64 place) const { return place == index ? dy : acc_t<T>(0); }
};
template <class T> struct Gradient<kinds::MaxWithIndex<T>> : AtIndex<T> {
  using AtIndex<T>::AtIndex;
};
template <class T> struct Gradient<kinds::MinWithIndex<T>> : AtIndex<T> {
  using AtIndex<T>::AtIndex;
};

// ---- products of all other elements ---------------------------------------------------------------------------------

template <class T, bool SKIPS_NAN> struct OtherFactors {
  static constexpr int reads = reads_dy | reads_x | reads_statistic;
  using Statistic = kinds::FactorsOf<T, SKIPS_NAN>;
  double dy;
  kinds::Factors factors;
  template <class Row>
  BARACUDA_D OtherFactors(const Row& row, const GradientFacts&) : dy(row.dy), factors(row.statistic) {}
  BARACUDA_D double operator()(acc_t<T> x, i64) const { return Statistic::without(factors, x, dy); }
};
template <class T> struct Gradient<kinds::Prod<T>> : OtherFactors<T, false> {
  using OtherFactors<T, false>::OtherFactors;
};
template <class T> struct Gradient<kinds::Nanprod<T>> : OtherFactors<T, true> {
  using OtherFactors<T, true>::OtherFactors;
};

// ---- variances: deviations from the mean, in double -----------------------------------------------------------------

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
template <class T> struct Gradient<kinds::VarMean<T>> : DeviationsOf<T, false, true, false> {
  using Base = DeviationsOf<T, false, true, false>;
  using Base::Base;
};
template <class T> struct Gradient<kinds::StdMean<T>> : DeviationsOf<T, true, true, false> {
  using Base = DeviationsOf<T, true, true, false>;
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

}  // namespace baracuda
