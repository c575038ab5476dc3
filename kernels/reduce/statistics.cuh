#pragma once
// statistics   what the gradient of a reduction needs of a row besides its result: a functor each, of
//              baracuda/reduce_axes.cuh. Result is the state itself, one a row in the workspace.
#include "reduce/kinds.cuh"

namespace baracuda::kinds {

// ---- extremes that several elements share ---------------------------------------------------------------------------

template <class A> struct Ties {
  A value;
  i64 count;
  BARACUDA_D bool has(A x) const { return x == value || (math::isnan(x) && math::isnan(value)); }
};
template <class A> BARACUDA_D Ties<A> merge_ties(const Ties<A>& a, const Ties<A>& b, A value) {
  return {value, (a.has(value) ? a.count : 0) + (b.has(value) ? b.count : 0)};
}

// Of what K, an extreme, makes of x; NaN is passed over where K passes it over.
template <class K, class T> struct TiesOf {
  using A = typename K::State;
  using State = Ties<A>;
  using Result = State;
  static BARACUDA_D T fill() { return K::fill(); }
  static BARACUDA_D State empty() { return {K::empty(), 0}; }
  static BARACUDA_D State merge(State a, State b) { return merge_ties(a, b, K::merge(a.value, b.value)); }
  static BARACUDA_D Result finish(State s, const Reduced&) { return s; }

  struct Lane {
    A value = K::empty();
    int count = 0;
    static BARACUDA_D bool same(A a, A b) { return Ties<A>{a, 0}.has(b); }
    template <int V> BARACUDA_D void add(const Vec<acc_t<T>, V>& x, i64 left, i64) {
      A top = K::leaf(x[0]);
#pragma unroll
      for (int k = 1; k < V; ++k) top = K::merge(top, K::leaf(x[k]));
      int here = 0;
      if (math::isnan(top)) {
#pragma unroll
        for (int k = 0; k < V; ++k) here += math::isnan(K::leaf(x[k]));
      } else {
#pragma unroll
        for (int k = 0; k < V; ++k) here += K::leaf(x[k]) == top;
      }
      if (left < V && same(K::leaf(x[V - 1]), top)) here -= V - static_cast<int>(left);  // past the end all are alike
      const A both = K::merge(value, top);
      count = (same(value, both) ? count : 0) + (same(top, both) ? here : 0);
      value = both;
    }
    BARACUDA_D State state() const { return {value, count}; }
  };
};

template <class A> struct BothTies {
  Ties<A> low, high;
};
template <class T> struct BothTiesOf {
  using Low = TiesOf<Amin<T>, T>;
  using High = TiesOf<Amax<T>, T>;
  using A = acc_t<T>;
  using State = BothTies<A>;
  using Result = State;
  static BARACUDA_D T fill() { return T(0.0f); }
  static BARACUDA_D State empty() { return {Low::empty(), High::empty()}; }
  static BARACUDA_D State merge(State a, State b) { return {Low::merge(a.low, b.low), High::merge(a.high, b.high)}; }
  static BARACUDA_D Result finish(State s, const Reduced&) { return s; }

  struct Lane {
    typename Low::Lane low;
    typename High::Lane high;
    template <int V> BARACUDA_D void add(const Vec<A, V>& x, i64 left, i64 index) {
      low.add(until(x, left, Low::empty().value), left, index);
      high.add(until(x, left, High::empty().value), left, index);
    }
    template <int V> static BARACUDA_D Vec<A, V> until(const Vec<A, V>& x, i64 left, A beyond) {
      Vec<A, V> held;
#pragma unroll
      for (int k = 0; k < V; ++k) held[k] = k < left ? x[k] : beyond;
      return held;
    }
    BARACUDA_D State state() const { return {low.state(), high.state()}; }
  };
};

// ---- mean, and how many ---------------------------------------------------------------------------------------------

template <class V> struct SpreadOf : V {  // of MeanSpread or Nanvar
  using Result = Spread;
  static BARACUDA_D Result finish(Spread s, const Reduced&) { return s; }
};

template <class T> struct Numbers : CountNonzero<T> {  // elements that are not NaN
  using Lane = Fold<Numbers>;
  static BARACUDA_D T fill() { return numeric<T>::nan(); }
  template <class A> static BARACUDA_D i64 leaf(A x) { return !math::isnan(x); }
};

template <class T> struct Exponentials : Logsumexp<T> {  // the largest, and Σ exp(x - largest)
  using Result = MaxSum<acc_t<T>>;
  static BARACUDA_D Result finish(Result s, const Reduced&) { return s; }
};

template <class T> struct PowersOf : PNorm<T> {  // the norm is top sum^(1 / p), which the element may not hold
  using Result = Powers;
  static BARACUDA_D Result finish(Powers s, const Reduced&) { return s; }
  static BARACUDA_D double norm(const Powers& s) { return s.sum == 0 ? 0.0 : s.top * math::pow(s.sum, 1.0 / s.p); }
};

// ---- products of all other elements ---------------------------------------------------------------------------------

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

}  // namespace baracuda::kinds
