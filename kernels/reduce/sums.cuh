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

}  // namespace baracuda::kinds
