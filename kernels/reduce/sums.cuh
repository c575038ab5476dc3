#pragma once
// sums       sums, means, counts, truth and the log of a sum of exponentials: functors of baracuda/reduce_axes.cuh, over elements T.
#include <baracuda/complex.cuh>
#include <baracuda/reduce_axes.cuh>

namespace baracuda::kinds {

// Sums, products and counts of integers are i64, as in PyTorch; of u64 they are u64.
template <class T>
using total_t = conditional<is_floating<T> || is_complex<T>, T, conditional<is_same<T, u64>, u64, i64>>;

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
  static BARACUDA_D T finish(acc_t<T> s, const Reduced& r) {
    const auto n = static_cast<part_t<acc_t<T>>>(r.count);
    if constexpr (is_complex<T>) return {s.re / n, s.im / n};
    else return cast<T>(s / n);
  }
};

template <class T> struct Nansum : Sum<T> {
  using Lane = Fold<Nansum>;
  static BARACUDA_D acc_t<T> leaf(acc_t<T> x) { return math::isnan(x) ? acc_t<T>(0) : x; }
};

template <class T> struct Nanmean {
  using A = acc_t<T>;
  struct State {
    A sum;
    i64 count;
  };
  using Result = T;
  using Lane = Fold<Nanmean>;
  static BARACUDA_D T fill() { return numeric<T>::nan(); }
  static BARACUDA_D State empty() { return {A(0), 0}; }
  static BARACUDA_D State leaf(A x) { return math::isnan(x) ? empty() : State{x, 1}; }
  static BARACUDA_D State merge(State a, State b) { return {a.sum + b.sum, a.count + b.count}; }
  static BARACUDA_D Result finish(State s, const Reduced&) { return cast<T>(s.sum / static_cast<A>(s.count)); }
};

template <class T> struct L1Norm : Sum<T> {
  using Lane = Fold<L1Norm>;
  static BARACUDA_D acc_t<T> leaf(acc_t<T> x) { return math::abs(x); }
};
template <class R> struct L1Norm<complex<R>> : Sum<R> {
  using Lane = Fold<L1Norm>;
  static BARACUDA_D complex<R> fill() { return R(0); }
  static BARACUDA_D R leaf(complex<R> z) { return math::hypot(z.re, z.im); }
};

template <class T> struct SumSquares : Sum<T> {
  using Lane = Fold<SumSquares>;
  static BARACUDA_D acc_t<T> leaf(acc_t<T> x) { return x * x; }
};

// Bits of all elements together; of bool they are one bit.
template <class T> struct Bits {
  using State = conditional<sizeof(T) == 8, u64, u32>;
  using Result = T;
  static BARACUDA_D T fill() { return T(0); }
  static BARACUDA_D State empty() { return 0; }
  template <class A> static BARACUDA_D State leaf(A x) { return static_cast<State>(x); }
  static BARACUDA_D Result finish(State s, const Reduced&) { return static_cast<T>(s); }
};
template <class T> struct XorSum : Bits<T> {  // of bool, whether an odd number is true
  using typename Bits<T>::State;
  using Lane = Fold<XorSum>;
  static BARACUDA_D State merge(State a, State b) { return a ^ b; }
};
template <class T> struct BitsOfAny : Bits<T> {
  using typename Bits<T>::State;
  using Lane = Fold<BitsOfAny>;
  static BARACUDA_D State merge(State a, State b) { return a | b; }
};
template <class T> struct BitsOfAll : Bits<T> {  // of no elements every bit
  using typename Bits<T>::State;
  using Lane = Fold<BitsOfAll>;
  static BARACUDA_D T fill() { return static_cast<T>(~0ll); }
  static BARACUDA_D State empty() { return ~State(0); }
  static BARACUDA_D State merge(State a, State b) { return a & b; }
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

template <class T> struct L0Norm : CountNonzero<T> {
  using Result = part_t<T>;
  static BARACUDA_D Result finish(i64 s, const Reduced&) { return cast<Result>(s); }
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

template <class T> struct Logmeanexp : Logsumexp<T> {
  using A = acc_t<T>;
  static BARACUDA_D T finish(MaxSum<A> s, const Reduced& r) {
    return cast<T>(s.max + math::log(s.sum / static_cast<A>(r.count)));
  }
};

}  // namespace baracuda::kinds
