#pragma once
// kinds      the reductions: one functor each, over elements T; see baracuda/reduce_axes.cuh for what a functor has.
//
// Floats of 16 bits and float are summed in float and double in double; integers and bool in 64 bits, modulo 2^64. Kinds
// that would leave the range or lose digits that the result has (products, 2-norms, variances) carry more, as they say.
#include <baracuda/reduce_axes.cuh>

namespace baracuda::kinds {

// Sums, products and counts of integers are i64, as in PyTorch; of u64 they are u64.
template <class T> using total_t = conditional<is_floating<T>, T, conditional<is_same<T, u64>, u64, i64>>;

// Signed overflow is not defined, so integers add and multiply as unsigned ones.
template <class A> BARACUDA_D A plus(A a, A b) {
  if constexpr (is_same<A, i64>) return static_cast<i64>(static_cast<u64>(a) + static_cast<u64>(b));
  else return a + b;
}

// ---- sums -----------------------------------------------------------------------------------------------------------

template <class T> struct Sum {
  using A = acc_t<T>;
  using State = A;
  using Result = total_t<T>;
  using Lane = Fold<Sum>;
  static BARACUDA_D T fill() { return T(0.0f); }
  static BARACUDA_D State empty() { return State(0); }
  static BARACUDA_D State leaf(A x) { return x; }
  static BARACUDA_D State merge(State a, State b) { return plus(a, b); }
  static BARACUDA_D Result finish(State s, const Reduced&) { return cast<Result>(s); }
};

template <class T> struct Mean : Sum<T> {
  static BARACUDA_D T finish(acc_t<T> s, const Reduced& r) { return cast<T>(s / static_cast<acc_t<T>>(r.count)); }
};

template <class T> struct Nansum : Sum<T> {
  using Lane = Fold<Nansum>;
  static BARACUDA_D acc_t<T> leaf(acc_t<T> x) { return math::isnan(x) ? acc_t<T>(0) : x; }
};

template <class T> struct L1Norm : Sum<T> {
  using Lane = Fold<L1Norm>;
  static BARACUDA_D acc_t<T> leaf(acc_t<T> x) { return math::abs(x); }
};

template <class T> struct SumSquares : Sum<T> {
  using Lane = Fold<SumSquares>;
  static BARACUDA_D acc_t<T> leaf(acc_t<T> x) { return x * x; }
};

// ---- counts and truth -----------------------------------------------------------------------------------------------

template <class T> struct CountNonzero {
  using State = i64;
  using Result = i64;
  using Lane = Fold<CountNonzero>;
  static BARACUDA_D T fill() { return T(0.0f); }
  static BARACUDA_D State empty() { return 0; }
  template <class A> static BARACUDA_D State leaf(A x) { return x != A(0); }  // NaN counts
  static BARACUDA_D State merge(State a, State b) { return a + b; }
  static BARACUDA_D Result finish(State s, const Reduced&) { return s; }
};

template <class T> struct Any {
  using State = u32;
  using Result = bool;
  using Lane = Fold<Any>;
  static BARACUDA_D T fill() { return T(0.0f); }
  static BARACUDA_D State empty() { return 0; }
  template <class A> static BARACUDA_D State leaf(A x) { return x != A(0); }  // NaN is true
  static BARACUDA_D State merge(State a, State b) { return a | b; }
  static BARACUDA_D Result finish(State s, const Reduced&) { return s != 0; }
};

template <class T> struct All : Any<T> {
  using Lane = Fold<All>;
  static BARACUDA_D T fill() { return T(1.0f); }
  static BARACUDA_D u32 empty() { return 1; }
  static BARACUDA_D u32 merge(u32 a, u32 b) { return a & b; }
};

// ---- extremes -------------------------------------------------------------------------------------------------------

template <class T> struct Amax {  // NaN wins
  using A = acc_t<T>;
  using State = A;
  using Result = T;
  using Lane = Fold<Amax>;
  static BARACUDA_D T fill() { return numeric<T>::bottom(); }
  static BARACUDA_D State empty() { return numeric<A>::bottom(); }
  static BARACUDA_D State leaf(A x) { return x; }
  static BARACUDA_D State merge(State a, State b) { return math::maximum(a, b); }
  static BARACUDA_D Result finish(State s, const Reduced&) { return cast<T>(s); }
};

template <class T> struct Amin {  // NaN wins
  using A = acc_t<T>;
  using State = A;
  using Result = T;
  using Lane = Fold<Amin>;
  static BARACUDA_D T fill() { return numeric<T>::top(); }
  static BARACUDA_D State empty() { return numeric<A>::top(); }
  static BARACUDA_D State leaf(A x) { return x; }
  static BARACUDA_D State merge(State a, State b) { return math::minimum(a, b); }
  static BARACUDA_D Result finish(State s, const Reduced&) { return cast<T>(s); }
};

// The place of the extreme: NaN wins, and of equals the first. Op is ArgMax or ArgMin of reduce.cuh.
template <class T, class Op, class Value> struct Place {
  using A = acc_t<T>;
  using State = Indexed<A>;
  using Result = i64;
  static constexpr i64 nowhere = ~0ull >> 1;
  static BARACUDA_D T fill() { return Value::fill(); }
  static BARACUDA_D State empty() { return {Value::empty(), nowhere}; }
  static BARACUDA_D State merge(State a, State b) { return Op::apply(a, b); }
  static BARACUDA_D Result finish(State s, const Reduced&) { return s.index; }

  struct Lane {
    State best = empty();
    template <int V> BARACUDA_D void add(const Vec<A, V>& x, i64 left, i64 index) {
      A value = x[0];
      int at = 0;
#pragma unroll
      for (int k = 1; k < V; ++k) {  // elements come in order, so an equal one changes nothing
        const bool better = k < left && Op::apply(State{value, 0}, State{x[k], 1}).index == 1;
        value = better ? x[k] : value;
        at = better ? k : at;
      }
      best = merge(best, State{value, index + at});
    }
    BARACUDA_D State state() const { return best; }
  };
};
template <class T> struct Argmax : Place<T, ArgMax, Amax<T>> {};
template <class T> struct Argmin : Place<T, ArgMin, Amin<T>> {};

// ---- products -------------------------------------------------------------------------------------------------------

// A product and what it lacks: hi + lo is the product of n numbers to n^2 2^-105 (Ogita, Rump and Oishi 2005), so that the
// result is rounded once. Double for every float: no partial product of 16-bit floats or floats leaves the range early.
struct Product {
  double hi, lo;
};
template <class T> struct Prod {
  using A = acc_t<T>;
  static constexpr bool exact = !is_floating<T>;
  using State = conditional<exact, u64, Product>;
  using Result = total_t<T>;
  using Lane = Fold<Prod>;
  static BARACUDA_D T fill() { return T(1.0f); }
  static BARACUDA_D State empty() { return leaf(A(1)); }
  static BARACUDA_D State leaf(A x) {
    if constexpr (exact) return static_cast<u64>(x);
    else return {static_cast<double>(x), 0.0};
  }
  static BARACUDA_D State merge(State a, State b) {
    if constexpr (exact) {
      return a * b;
    } else {
      const double hi = a.hi * b.hi;
      return {hi, math::fma(a.hi, b.lo, math::fma(a.lo, b.hi, math::fma(a.hi, b.hi, -hi)))};
    }
  }
  static BARACUDA_D Result finish(State s, const Reduced&) {
    if constexpr (exact) return static_cast<Result>(s);
    else return cast<T>(math::isfinite(s.hi) ? s.hi + s.lo : s.hi);  // beyond an infinity lo is NaN
  }
};

// ---- 2-norm ---------------------------------------------------------------------------------------------------------

// Squares of floats are exact in double, and in range. Those of doubles are summed in three ranges (Blue 1978): as they
// are, of |x| > 2^400 times 2^-1200, of |x| < 2^-400 times 2^1200.
struct Squares {
  double middle, large, small;
};
template <class T> struct L2Norm {
  using A = acc_t<T>;
  static constexpr bool ranges = is_same<T, double>;
  using State = conditional<ranges, Squares, double>;
  using Result = T;
  using Lane = Fold<L2Norm>;
  static BARACUDA_D T fill() { return T(0.0f); }
  static BARACUDA_D State empty() { return State{}; }
  static BARACUDA_D State leaf(A value) {
    const double x = static_cast<double>(value);
    if constexpr (ranges) {
      const double size = math::abs(x), large = x * 0x1p-600, small = x * 0x1p+600;
      if (size > 0x1p+400) return {0.0, large * large, 0.0};
      if (size < 0x1p-400) return {0.0, 0.0, small * small};
      return {x * x, 0.0, 0.0};  // NaN too
    } else {
      return x * x;
    }
  }
  static BARACUDA_D State merge(State a, State b) {
    if constexpr (ranges) return {a.middle + b.middle, a.large + b.large, a.small + b.small};
    else return a + b;
  }
  static BARACUDA_D Result finish(State s, const Reduced&) {
    if constexpr (!ranges) {
      return cast<T>(math::sqrt(s));
    } else {
      if (s.large != 0) return math::sqrt(s.large + s.middle * 0x1p-600 * 0x1p-600) * 0x1p+600;
      if (s.middle == 0) return math::sqrt(s.small) * 0x1p-600;
      return math::sqrt(s.middle + s.small * 0x1p-600 * 0x1p-600);
    }
  }
};

// ---- log of a sum of exponentials -----------------------------------------------------------------------------------

template <class T> struct Logsumexp {
  using A = acc_t<T>;
  using State = MaxSum<A>;
  using Result = T;
  static BARACUDA_D T fill() { return numeric<T>::bottom(); }
  static BARACUDA_D State empty() { return {numeric<A>::bottom(), A(0)}; }
  static BARACUDA_D State merge(State a, State b) { return LogSumExp::apply(a, b); }
  static BARACUDA_D Result finish(State s, const Reduced&) { return cast<T>(s.max + math::log(s.sum)); }

  struct Lane {
    State s = empty();
    template <int V> BARACUDA_D void add(const Vec<A, V>& x, i64, i64) {
      const A top = tree_reduce<Max>(x);
      const A shift = math::isfinite(top) ? top : A(0);  // an infinity less itself is NaN
      Vec<A, V> e;
#pragma unroll
      for (int k = 0; k < V; ++k) e[k] = math::exp(x[k] - shift);
      s = merge(s, State{top, tree_reduce<baracuda::Sum>(e)});
    }
    BARACUDA_D State state() const { return s; }
  };
};

// ---- variance -------------------------------------------------------------------------------------------------------

// Mean = base + offset, sum of squared deviations from it, and count (Chan, Golub and LeVeque 1979), in double for every
// element. A base that is an element of the row keeps the difference of two means exact however far off 0 they are.
struct Spread {
  double base, offset, m2, n;
};
template <class T> struct Var {
  using A = acc_t<T>;
  using State = Spread;
  using Result = T;
  static BARACUDA_D T fill() { return T(0.0f); }
  static BARACUDA_D State empty() { return {0.0, 0.0, 0.0, 0.0}; }
  static BARACUDA_D State merge(State a, State b) {
    if (b.n == 0) return a;
    if (a.n == 0) return b;
    const double n = a.n + b.n, delta = (b.base - a.base) + (b.offset - a.offset), share = b.n / n;
    return {a.base, math::fma(delta, share, a.offset), a.m2 + b.m2 + delta * delta * (a.n * share), n};
  }
  static BARACUDA_D double variance(const State& s, const Reduced& r) {
    return s.m2 / static_cast<double>(max<i64>(r.count - r.correction, 0));
  }
  static BARACUDA_D Result finish(State s, const Reduced& r) { return cast<T>(variance(s, r)); }

  // Deviations from the lane's first element (Ling 1974): no division an element. The mean of n numbers is at most
  // sqrt(n) standard deviations from any of them, and a lane has at most 128.
  struct Lane {
    double base = 0, sum = 0, squares = 0, n = 0;
    template <int V> BARACUDA_D void add(const Vec<A, V>& x, i64 left, i64) {
      if (n == 0) base = static_cast<double>(x[0]);
      Vec<double, V> d, s;
#pragma unroll
      for (int k = 0; k < V; ++k) {
        d[k] = k < left ? static_cast<double>(x[k]) - base : 0.0;
        s[k] = d[k] * d[k];
      }
      sum += tree_reduce<baracuda::Sum>(d);
      squares += tree_reduce<baracuda::Sum>(s);
      n += static_cast<double>(left < V ? static_cast<int>(left) : V);
    }
    BARACUDA_D State state() const {
      if (n == 0) return empty();
      const double offset = sum / n, m2 = squares - sum * offset;
      return {base, offset, m2 < 0 ? 0.0 : m2, n};
    }
  };
};
template <class T> struct Std : Var<T> {
  static BARACUDA_D T finish(Spread s, const Reduced& r) { return cast<T>(math::sqrt(Var<T>::variance(s, r))); }
};

}  // namespace baracuda::kinds
