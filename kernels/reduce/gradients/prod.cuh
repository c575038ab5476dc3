#pragma once
// prod  gradients of products: dy times the product of all other elements.
#include "reduce/gradients.cuh"
#include "reduce/prod.cuh"

namespace baracuda {

namespace kinds {

// The product of the elements that are neither 0, infinite nor NaN; of those `flags` has two bits each, 0, 1, or 2 for
// more, and whether an odd number of the zeros and infinities is negative. So the product without an element follows from
// one division by it, or from a zero or an infinity left out.
struct Factors {
  Product product;
  u32 flags, unused;
};
constexpr int zeros_at = 0, infinities_at = 2, nans_at = 4;
constexpr u32 negative = 64;

BARACUDA_D u32 saturated(u32 a, u32 b, int at) { return min<u32>((a >> at & 3) + (b >> at & 3), 2) << at; }

template <class T, bool SKIPS_NAN> struct FactorsOf {
  using A = acc_t<T>;
  using State = Factors;
  using Result = State;
  using Lane = Fold<FactorsOf>;
  static BARACUDA_D T fill() { return T(1.0f); }
  static BARACUDA_D State empty() { return flagged(0); }
  static BARACUDA_D State flagged(u32 flags) { return {Product::of(1.0f), flags, 0}; }
  static BARACUDA_D State leaf(A x) {
    if (math::isnan(x)) return flagged(SKIPS_NAN ? 0u : 1u << nans_at);
    const u32 sign = math::signbit(x) ? negative : 0u;
    if (x == 0) return flagged(1u << zeros_at | sign);
    if (math::isinf(x)) return flagged(1u << infinities_at | sign);
    return {Product::of(x), 0, 0};
  }
  static BARACUDA_D State merge(const State& a, const State& b) {
    const u32 flags = saturated(a.flags, b.flags, zeros_at) | saturated(a.flags, b.flags, infinities_at) |
                      saturated(a.flags, b.flags, nans_at) | ((a.flags ^ b.flags) & negative);
    return {Product::merge(a.product, b.product), flags, 0};
  }
  static BARACUDA_D Result finish(const State& s, const Reduced&) { return s; }

  // dy times the product of all elements but one, which is `value`.
  static BARACUDA_D double without(const State& s, A value, double dy) {
    const double x = static_cast<double>(value);
    const bool zero = x == 0, infinite = math::isinf(x), nan = math::isnan(x);
    if (SKIPS_NAN && nan) return 0.0;
    const u32 zeros = (s.flags >> zeros_at & 3) - zero, infinities = (s.flags >> infinities_at & 3) - infinite;
    const u32 nans = (s.flags >> nans_at & 3) - nan;
    if (nans != 0 || (zeros != 0 && infinities != 0)) return numeric<double>::nan();
    const bool special = zero || infinite || nan;
    const Product all = s.product, by = special ? Product::of(1.0f) : Product::of(x);
    const double whole = all.hi / by.hi;
    const double quotient = whole + (math::fma(-whole, by.hi, all.hi) + all.lo) / by.hi;
    const bool flipped = ((s.flags & negative) != 0) != (special && math::signbit(x));
    const double rest = flipped ? -quotient : quotient;
    if (zeros != 0) return dy * math::copysign(0.0, rest);
    if (infinities != 0) return dy * math::copysign(numeric<double>::infinity(), rest);
    if (dy == 0 || !math::isfinite(dy)) return dy * rest;
    const Product others = Product::scaled(rest, 0.0, all.steps - by.steps), own = Product::of(dy);
    return Product::shifted(own.hi * others.hi, own.steps + others.steps);
  }
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

template <class R> struct Gradient<kinds::Prod<complex<R>>> {
  static constexpr int reads = reads_dy | reads_x | reads_statistic;
  using Statistic = kinds::ComplexFactorsOf<R>;
  complex<double> dy;
  kinds::ComplexFactors factors;
  template <class Row>
  BARACUDA_D Gradient(const Row& row, const GradientFacts&) : dy(in_double(row.dy)), factors(row.statistic) {}
  BARACUDA_D complex<double> operator()(complex<R> z, i64) const { return Statistic::without(factors, z, dy); }
};

}  // namespace baracuda
