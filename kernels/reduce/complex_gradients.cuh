#pragma once
// complex_gradients  Gradient<K> of reductions of complex numbers. What the gradient of y is to dx is PyTorch's convention:
//                    dx = dy times the conjugate of dy/dx, so that a step along -dx lessens a real loss.
//
// Given is the element of dy and y where it is not x's: norms and variances are real. Slopes are in double.
#include "reduce/gradients.cuh"

namespace baracuda {

namespace kinds {

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

// (hi + lo) 2^exponent is the product of the elements that are neither 0 nor infinite nor NaN, of which there are 0, 1 or,
// for more, 2. So no partial product leaves the range, and lo keeps what hi loses of a long one.
struct ComplexFactors {
  complex<double> hi;
  complex<float> lo;
  i64 exponent : 56;
  u64 zeros : 4;
  u64 bad : 4;
};
template <class R> struct ComplexFactorsOf {
  using C = complex<double>;
  using State = ComplexFactors;
  using Result = State;
  using Lane = Fold<ComplexFactorsOf>;
  static BARACUDA_D complex<R> fill() { return R(1); }
  static BARACUDA_D State empty() { return {C(1.0), complex<float>(0.0f), 0, 0, 0}; }
  static BARACUDA_D bool zero(complex<R> z) { return z.re == R(0) && z.im == R(0); }
  static BARACUDA_D State leaf(complex<R> z) {
    State s = empty();
    if (!math::isfinite(z)) s.bad = 1;
    else if (zero(z)) s.zeros = 1;
    else s = scaled(cast<C>(z), C(0.0), s);
    return s;
  }
  static BARACUDA_D State merge(const State& a, const State& b) {
    using Exact = Prod<complex<double>>;
    const C re = Exact::difference(a.hi.re, b.hi.re, a.hi.im, b.hi.im);
    const C im = Exact::difference(a.hi.re, b.hi.im, -a.hi.im, b.hi.re);
    const C cross = math::plain_product(a.hi, cast<C>(b.lo)) + math::plain_product(cast<C>(a.lo), b.hi);
    State s = empty();
    s.exponent = a.exponent + b.exponent;
    s.zeros = min<u64>(a.zeros + b.zeros, 2);
    s.bad = min<u64>(a.bad + b.bad, 2);
    return scaled({re.re, im.re}, C(re.im, im.im) + cross, s);
  }
  static BARACUDA_D Result finish(const State& s, const Reduced&) { return s; }

  // hi + lo near 1 in size, with the exponent that it then has.
  static BARACUDA_D State scaled(C hi, C lo, State s) {
    const int e = math::exponent(math::larger_part(hi));
    s.hi = math::scaled(hi, -e);
    s.lo = cast<complex<float>>(math::scaled(lo, -e));
    s.exponent += e;
    return s;
  }

  // dy times the conjugate of the product of all elements but one, which is z.
  static BARACUDA_D C without(const State& s, complex<R> z, C dy) {
    const bool none = zero(z), bad = !math::isfinite(z);
    if (s.bad != (bad ? 1 : 0)) return {numeric<double>::nan(), numeric<double>::nan()};
    if (s.zeros != (none ? 1 : 0)) return 0.0;
    C rest = s.hi + cast<C>(s.lo);
    i64 exponent = s.exponent;
    if (!none && !bad) {
      const int e = math::exponent(math::larger_part(cast<C>(z)));
      rest = math::over(rest, math::scaled(cast<C>(z), -e));
      exponent -= e;
    }
    rest = math::conj(rest);
    if ((dy.re == 0 && dy.im == 0) || !math::isfinite(dy)) return math::plain_product(dy, rest);
    const int own = math::exponent(math::larger_part(dy));
    const int shift = static_cast<int>(max<i64>(min<i64>(exponent + own, 4000), -4000));
    return math::scaled(math::plain_product(math::scaled(dy, -own), rest), shift);
  }
};

}  // namespace kinds

// The element of dy and y.
template <class G, class T, class = void> struct given_of {
  using type = T;
};
template <class G, class T> struct given_of<G, T, void_t<typename G::Given>> {
  using type = typename G::Given;
};

template <class R> BARACUDA_D complex<double> in_double(complex<R> z) { return cast<complex<double>>(z); }

// dy z / |z|, 0 at 0, and NaN in both parts where z is not finite. Powers of 2 keep |z| from where it has few digits or
// none.
BARACUDA_D complex<double> directed(complex<double> z, double dy) {
  if (!math::isfinite(z)) return {numeric<double>::nan(), numeric<double>::nan()};
  const double top = max(math::abs(z.re), math::abs(z.im));
  if (top == 0) return {dy * z.re, dy * z.im};
  if (top > 0x1p1000) {
    const double size = math::hypot(0.25 * z.re, 0.25 * z.im);
    return {times_share(0.25 * dy, z.re, size), times_share(0.25 * dy, z.im, size)};
  }
  const double by = top < 0x1p-900 ? 0x1p200 : 1.0, size = math::hypot(z.re * by, z.im * by);
  return {times_share(dy, z.re * by, size), times_share(dy, z.im * by, size)};
}

// ---- sums and products ----------------------------------------------------------------------------------------------

template <class R> struct Gradient<kinds::Mean<complex<R>>> {
  static constexpr int reads = reads_dy;
  using Statistic = Nothing;
  complex<R> dy;
  template <class Row> BARACUDA_D Gradient(const Row& row, const GradientFacts& facts) {
    const R n = static_cast<R>(facts.count);
    dy = {row.dy.re / n, row.dy.im / n};
  }
  BARACUDA_D complex<R> operator()(complex<R>, i64) const { return dy; }
};

template <class R> struct Gradient<kinds::Prod<complex<R>>> {
  static constexpr int reads = reads_dy | reads_x | reads_statistic;
  using Statistic = kinds::ComplexFactorsOf<R>;
  complex<double> dy;
  kinds::ComplexFactors factors;
  template <class Row>
  BARACUDA_D Gradient(const Row& row, const GradientFacts&) : dy(in_double(row.dy)), factors(row.statistic) {}
  BARACUDA_D complex<double> operator()(complex<R> z, i64) const { return Statistic::without(factors, z, dy); }
};

// ---- norms: 0 where the norm is 0 -----------------------------------------------------------------------------------

template <class R> struct Gradient<kinds::L1Norm<complex<R>>> {
  static constexpr int reads = reads_dy | reads_x;
  using Given = R;
  using Statistic = Nothing;
  double dy;
  template <class Row> BARACUDA_D Gradient(const Row& row, const GradientFacts&) : dy(row.dy) {}
  BARACUDA_D complex<double> operator()(complex<R> z, i64) const { return directed(in_double(z), dy); }
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

// dy divided evenly among the elements whose magnitude is the extreme.
template <class K, class R> struct SharedSize {
  static constexpr int reads = reads_dy | reads_x | reads_statistic;
  using Given = R;
  using Statistic = kinds::TiesOf<K, complex<R>>;
  double dy;
  kinds::Ties<double> ties;
  template <class Row>
  BARACUDA_D SharedSize(const Row& row, const GradientFacts&)
      : dy(row.dy / static_cast<double>(row.statistic.count)), ties(row.statistic) {}
  BARACUDA_D complex<double> operator()(complex<R> z, i64) const {
    if (!ties.has(K::leaf(z))) return 0.0;
    return directed(in_double(z), dy);
  }
};
template <class R> struct Gradient<kinds::MaxNorm<complex<R>>> : SharedSize<kinds::MaxNorm<complex<R>>, R> {
  using SharedSize<kinds::MaxNorm<complex<R>>, R>::SharedSize;
};
template <class R> struct Gradient<kinds::MinNorm<complex<R>>> : SharedSize<kinds::MinNorm<complex<R>>, R> {
  using SharedSize<kinds::MinNorm<complex<R>>, R>::SharedSize;
};

// ---- variances ------------------------------------------------------------------------------------------------------

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
