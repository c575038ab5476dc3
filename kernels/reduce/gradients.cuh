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
  i64 index;  // of the element that the gradient goes to
  typename S::Result statistic;
};

// What holds for all rows.
struct GradientFacts {
  double count, correction, p;
};

template <class A> BARACUDA_D A sign_of(A x) {
  return x > A(0) ? A(1) : x < A(0) ? A(-1) : A(0);
}  // 0 of NaN, as torch's

template <class K> struct Gradient;

// ---- sums ------------------------------------------------------------------------------------------------------------

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
  BARACUDA_D Gradient(const Row& row, const GradientFacts& facts) : dy(row.dy / static_cast<acc_t<T>>(row.statistic)) {}
  BARACUDA_D acc_t<T> operator()(acc_t<T> x, i64) const { return dy * acc_t<T>(!math::isnan(x)); }
};

template <class T> struct Gradient<kinds::Logsumexp<T>> {
  static constexpr int reads = reads_dy | reads_x | reads_y;
  using Statistic = Nothing;
  acc_t<T> dy;
  acc_t<T> y;
  template <class Row> BARACUDA_D Gradient(const Row& row, const GradientFacts& facts) : dy(row.dy), y(row.y) {}
  BARACUDA_D acc_t<T> operator()(acc_t<T> x, i64) const { return dy * math::exp(x - y); }
};

template <class T> struct Gradient<kinds::Logmeanexp<T>> {
  static constexpr int reads = reads_dy | reads_x | reads_y;
  using Statistic = Nothing;
  acc_t<T> dy;
  acc_t<T> y;
  template <class Row>
  BARACUDA_D Gradient(const Row& row, const GradientFacts& facts)
      : dy(row.dy / static_cast<acc_t<T>>(facts.count)), y(row.y) {}
  BARACUDA_D acc_t<T> operator()(acc_t<T> x, i64) const { return dy * math::exp(x - y); }
};

// ---- norms: 0 where the norm is 0 ------------------------------------------------------------------------------------

template <class T> struct Gradient<kinds::L1Norm<T>> {
  static constexpr int reads = reads_dy | reads_x;
  using Statistic = Nothing;
  acc_t<T> dy;
  template <class Row> BARACUDA_D Gradient(const Row& row, const GradientFacts&) : dy(row.dy) {}
  BARACUDA_D acc_t<T> operator()(acc_t<T> x, i64) const { return dy * sign_of(x); }
};

// In double: x / y may be subnormal in float where the product is not.
template <class T> struct Gradient<kinds::L2Norm<T>> {
  static constexpr int reads = reads_dy | reads_x | reads_y;
  using Statistic = Nothing;
  double dy;
  double y;
  template <class Row> BARACUDA_D Gradient(const Row& row, const GradientFacts& facts) : dy(row.dy), y(row.y) {}
  BARACUDA_D double operator()(acc_t<T> x, i64) const { return y == 0 ? 0.0 : dy * (x / y); }
};

template <class T> struct Gradient<kinds::PNorm<T>> {
  static constexpr int reads = reads_dy | reads_x | reads_y;
  using Statistic = Nothing;
  double dy;
  double y;
  double power;
  template <class Row>
  BARACUDA_D Gradient(const Row& row, const GradientFacts& facts) : dy(row.dy), y(row.y), power(facts.p - 1) {}
  BARACUDA_D double operator()(acc_t<T> x, i64) const {
    if (x == 0 || y == 0) return 0.0;
    return dy * math::copysign(math::pow(math::abs(static_cast<double>(x)) / y, power), static_cast<double>(x));
  }
};

template <class T> struct Gradient<kinds::MaxNorm<T>> {
  static constexpr int reads = reads_dy | reads_x | reads_statistic;
  using Statistic = kinds::TiesOf<kinds::MaxNorm<T>, T>;
  acc_t<T> dy;
  kinds::Ties<acc_t<T>> ties;
  template <class Row>
  BARACUDA_D Gradient(const Row& row, const GradientFacts& facts)
      : dy(row.dy / static_cast<acc_t<T>>(row.statistic.count)), ties(row.statistic) {}
  BARACUDA_D acc_t<T> operator()(acc_t<T> x, i64) const {
    return ties.has(math::abs(x)) ? dy * sign_of(x) : acc_t<T>(0);
  }
};

template <class T> struct Gradient<kinds::MinNorm<T>> {
  static constexpr int reads = reads_dy | reads_x | reads_statistic;
  using Statistic = kinds::TiesOf<kinds::MinNorm<T>, T>;
  acc_t<T> dy;
  kinds::Ties<acc_t<T>> ties;
  template <class Row>
  BARACUDA_D Gradient(const Row& row, const GradientFacts& facts)
      : dy(row.dy / static_cast<acc_t<T>>(row.statistic.count)), ties(row.statistic) {}
  BARACUDA_D acc_t<T> operator()(acc_t<T> x, i64) const {
    return ties.has(math::abs(x)) ? dy * sign_of(x) : acc_t<T>(0);
  }
};

// ---- extremes: dy divided evenly among the elements that are it ------------------------------------------------------

template <class T> struct Gradient<kinds::Amax<T>> {
  static constexpr int reads = reads_dy | reads_x | reads_statistic;
  using Statistic = kinds::TiesOf<kinds::Amax<T>, T>;
  acc_t<T> dy;
  kinds::Ties<acc_t<T>> ties;
  template <class Row>
  BARACUDA_D Gradient(const Row& row, const GradientFacts& facts)
      : dy(row.dy / static_cast<acc_t<T>>(row.statistic.count)), ties(row.statistic) {}
  BARACUDA_D acc_t<T> operator()(acc_t<T> x, i64) const { return ties.has(x) ? dy : acc_t<T>(0); }
};

template <class T> struct Gradient<kinds::Amin<T>> {
  static constexpr int reads = reads_dy | reads_x | reads_statistic;
  using Statistic = kinds::TiesOf<kinds::Amin<T>, T>;
  acc_t<T> dy;
  kinds::Ties<acc_t<T>> ties;
  template <class Row>
  BARACUDA_D Gradient(const Row& row, const GradientFacts& facts)
      : dy(row.dy / static_cast<acc_t<T>>(row.statistic.count)), ties(row.statistic) {}
  BARACUDA_D acc_t<T> operator()(acc_t<T> x, i64) const { return ties.has(x) ? dy : acc_t<T>(0); }
};

template <class T> struct Gradient<kinds::Nanmax<T>> {
  static constexpr int reads = reads_dy | reads_x | reads_statistic;
  using Statistic = kinds::TiesOf<kinds::Nanmax<T>, T>;
  acc_t<T> dy;
  kinds::Ties<acc_t<T>> ties;
  template <class Row>
  BARACUDA_D Gradient(const Row& row, const GradientFacts& facts)
      : dy(row.dy / static_cast<acc_t<T>>(row.statistic.count)), ties(row.statistic) {}
  BARACUDA_D acc_t<T> operator()(acc_t<T> x, i64) const { return ties.has(x) ? dy : acc_t<T>(0); }
};

template <class T> struct Gradient<kinds::Nanmin<T>> {
  static constexpr int reads = reads_dy | reads_x | reads_statistic;
  using Statistic = kinds::TiesOf<kinds::Nanmin<T>, T>;
  acc_t<T> dy;
  kinds::Ties<acc_t<T>> ties;
  template <class Row>
  BARACUDA_D Gradient(const Row& row, const GradientFacts& facts)
      : dy(row.dy / static_cast<acc_t<T>>(row.statistic.count)), ties(row.statistic) {}
  BARACUDA_D acc_t<T> operator()(acc_t<T> x, i64) const { return ties.has(x) ? dy : acc_t<T>(0); }
};

// low of those that are the smallest, high of the largest.
template <class T> struct Shares {
  acc_t<T> low, high;
  kinds::BothTies<acc_t<T>> ties;
  BARACUDA_D Shares(acc_t<T> low, acc_t<T> high, const kinds::BothTies<acc_t<T>>& ties)
      : low(low / static_cast<acc_t<T>>(ties.low.count)), high(high / static_cast<acc_t<T>>(ties.high.count)),
        ties(ties) {}
  BARACUDA_D acc_t<T> of(acc_t<T> x) const {
    return (ties.low.has(x) ? low : acc_t<T>(0)) + (ties.high.has(x) ? high : acc_t<T>(0));
  }
};

template <class T> struct Gradient<kinds::Ptp<T>> {
  static constexpr int reads = reads_dy | reads_x | reads_statistic;
  using Statistic = kinds::BothTiesOf<T>;
  Shares<T> shares;
  template <class Row>
  BARACUDA_D Gradient(const Row& row, const GradientFacts& facts) : shares(-row.dy, row.dy, row.statistic) {}
  BARACUDA_D acc_t<T> operator()(acc_t<T> x, i64) const { return shares.of(x); }
};

template <class T> struct Gradient<kinds::Aminmax<T>> {
  static constexpr int reads = reads_dy | reads_dz | reads_x | reads_statistic;
  using Statistic = kinds::BothTiesOf<T>;
  Shares<T> shares;
  template <class Row>
  BARACUDA_D Gradient(const Row& row, const GradientFacts& facts) : shares(row.dy, row.dz, row.statistic) {}
  BARACUDA_D acc_t<T> operator()(acc_t<T> x, i64) const { return shares.of(x); }
};

template <class T> struct Gradient<kinds::MaxWithIndex<T>> {
  static constexpr int reads = reads_dy | reads_index;
  using Statistic = Nothing;
  acc_t<T> dy;
  i64 index;
  template <class Row> BARACUDA_D Gradient(const Row& row, const GradientFacts& facts) : dy(row.dy), index(row.index) {}
  BARACUDA_D acc_t<T> operator()(acc_t<T>, i64 place) const { return place == index ? dy : acc_t<T>(0); }
};

template <class T> struct Gradient<kinds::MinWithIndex<T>> {
  static constexpr int reads = reads_dy | reads_index;
  using Statistic = Nothing;
  acc_t<T> dy;
  i64 index;
  template <class Row> BARACUDA_D Gradient(const Row& row, const GradientFacts& facts) : dy(row.dy), index(row.index) {}
  BARACUDA_D acc_t<T> operator()(acc_t<T>, i64 place) const { return place == index ? dy : acc_t<T>(0); }
};

// ---- products --------------------------------------------------------------------------------------------------------

template <class T> struct Gradient<kinds::Prod<T>> {
  static constexpr int reads = reads_dy | reads_x | reads_statistic;
  using Statistic = kinds::FactorsOf<T, false>;
  double dy;
  kinds::Factors factors;
  template <class Row>
  BARACUDA_D Gradient(const Row& row, const GradientFacts& facts) : dy(row.dy), factors(row.statistic) {}
  BARACUDA_D double operator()(acc_t<T> x, i64) const { return Statistic::without(factors, x, dy); }
};

template <class T> struct Gradient<kinds::Nanprod<T>> {
  static constexpr int reads = reads_dy | reads_x | reads_statistic;
  using Statistic = kinds::FactorsOf<T, true>;
  double dy;
  kinds::Factors factors;
  template <class Row>
  BARACUDA_D Gradient(const Row& row, const GradientFacts& facts) : dy(row.dy), factors(row.statistic) {}
  BARACUDA_D double operator()(acc_t<T> x, i64) const { return Statistic::without(factors, x, dy); }
};

// ---- variances: deviations from the mean, in double ------------------------------------------------------------------

struct Deviation {
  double slope, base, offset, shift;
  BARACUDA_D Deviation(const kinds::Spread& s, double dy, double freedom, double shift)
      : slope(dy * (2.0 / freedom)), base(s.base), offset(s.offset), shift(shift) {}
  BARACUDA_D double of(double x) const { return slope * ((x - base) - offset) + shift; }
};
// Of the variance under a square root y, which has no slope at 0: 0, as PyTorch says.
BARACUDA_D double under_root(double dy, double y) { return y == 0 ? 0.0 : dy / (2 * y); }

template <class T> struct Gradient<kinds::Var<T>> {
  static constexpr int reads = reads_dy | reads_x | reads_statistic;
  using Statistic = kinds::SpreadOf<kinds::MeanSpread<T>>;
  Deviation deviation;
  template <class Row>
  BARACUDA_D Gradient(const Row& row, const GradientFacts& facts)
      : deviation(row.statistic, row.dy, facts.count - facts.correction, 0) {}
  BARACUDA_D double operator()(acc_t<T> x, i64) const { return deviation.of(x); }
};

template <class T> struct Gradient<kinds::Std<T>> {
  static constexpr int reads = reads_dy | reads_x | reads_y | reads_statistic;
  using Statistic = kinds::SpreadOf<kinds::MeanSpread<T>>;
  Deviation deviation;
  template <class Row>
  BARACUDA_D Gradient(const Row& row, const GradientFacts& facts)
      : deviation(row.statistic, under_root(row.dy, row.y), facts.count - facts.correction, 0) {}
  BARACUDA_D double operator()(acc_t<T> x, i64) const { return deviation.of(x); }
};

template <class T> struct Gradient<kinds::VarMean<T>> {
  static constexpr int reads = reads_dy | reads_dz | reads_x | reads_statistic;
  using Statistic = kinds::SpreadOf<kinds::MeanSpread<T>>;
  Deviation deviation;
  template <class Row>
  BARACUDA_D Gradient(const Row& row, const GradientFacts& facts)
      : deviation(row.statistic, row.dy, facts.count - facts.correction, row.dz / facts.count) {}
  BARACUDA_D double operator()(acc_t<T> x, i64) const { return deviation.of(x); }
};

template <class T> struct Gradient<kinds::StdMean<T>> {
  static constexpr int reads = reads_dy | reads_dz | reads_x | reads_y | reads_statistic;
  using Statistic = kinds::SpreadOf<kinds::MeanSpread<T>>;
  Deviation deviation;
  template <class Row>
  BARACUDA_D Gradient(const Row& row, const GradientFacts& facts)
      : deviation(row.statistic, under_root(row.dy, row.y), facts.count - facts.correction, row.dz / facts.count) {}
  BARACUDA_D double operator()(acc_t<T> x, i64) const { return deviation.of(x); }
};

template <class T> struct Gradient<kinds::Nanvar<T>> {
  static constexpr int reads = reads_dy | reads_x | reads_statistic;
  using Statistic = kinds::SpreadOf<kinds::Nanvar<T>>;
  Deviation deviation;
  template <class Row>
  BARACUDA_D Gradient(const Row& row, const GradientFacts& facts)
      : deviation(row.statistic, row.dy, row.statistic.n - facts.correction, 0) {}
  BARACUDA_D double operator()(acc_t<T> x, i64) const { return math::isnan(x) ? 0.0 : deviation.of(x); }
};

template <class T> struct Gradient<kinds::Nanstd<T>> {
  static constexpr int reads = reads_dy | reads_x | reads_y | reads_statistic;
  using Statistic = kinds::SpreadOf<kinds::Nanvar<T>>;
  Deviation deviation;
  template <class Row>
  BARACUDA_D Gradient(const Row& row, const GradientFacts& facts)
      : deviation(row.statistic, under_root(row.dy, row.y), row.statistic.n - facts.correction, 0) {}
  BARACUDA_D double operator()(acc_t<T> x, i64) const { return math::isnan(x) ? 0.0 : deviation.of(x); }
};

}  // namespace baracuda
