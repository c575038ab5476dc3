#pragma once
// kinds      the scans: one functor each, over elements T; see baracuda/scan_axis.cuh for what a functor has.
//
// A scan has long chains of merges, so sums and products of floats carry more than their accumulator: results are rounded
// once, however long the row.
#include <baracuda/scan_axis.cuh>
#include "reduce/kinds.cuh"

namespace baracuda::kinds {

// hi + lo is a sum of doubles to twice their digits (Knuth 1969).
struct DoubleSum {
  double hi, lo;
};
template <class T> struct Cumsum {
  using A = acc_t<T>;
  static constexpr bool wide = is_same<T, double>, indexed = false;
  using State = conditional<wide, DoubleSum, conditional<is_floating<T>, double, u64>>;
  using Result = total_t<T>;
  static BARACUDA_D State empty() { return State{}; }
  static BARACUDA_D State leaf(A x, i64) {
    if constexpr (wide) return {x, 0.0};
    else return static_cast<State>(x);
  }
  static BARACUDA_D State merge(State a, State b) {
    if constexpr (wide) {
      const double hi = a.hi + b.hi, part = hi - a.hi;
      return {hi, (a.hi - (hi - part)) + (b.hi - part) + (a.lo + b.lo)};
    } else {
      return a + b;
    }
  }
  static BARACUDA_D Result value(State s) {
    if constexpr (wide) return math::isfinite(s.hi) ? s.hi + s.lo : s.hi;  // beyond an infinity lo is NaN
    else return cast<Result>(s);
  }
};

template <class T> struct Cumprod : Prod<T> {
  static constexpr bool indexed = false;
  using State = typename Prod<T>::State;
  static BARACUDA_D State leaf(acc_t<T> x, i64) { return Prod<T>::leaf(x); }
  static BARACUDA_D typename Prod<T>::Result value(State s) { return Prod<T>::finish(s, Reduced{}); }
};

template <class T> struct Logcumsumexp : Logsumexp<T> {
  static constexpr bool indexed = false;
  using A = acc_t<T>;
  static BARACUDA_D MaxSum<A> leaf(A x, i64) { return {x, x == numeric<A>::bottom() ? A(0) : A(1)}; }
  static BARACUDA_D T value(MaxSum<A> s) { return Logsumexp<T>::finish(s, Reduced{}); }
};

// The extreme so far and its place: NaN wins, and of equals the last, as in PyTorch.
template <class T> struct Cummax {
  using A = acc_t<T>;
  using State = Indexed<A>;
  using Result = T;
  static constexpr bool indexed = true;
  static BARACUDA_D State empty() { return {numeric<A>::bottom(), -1}; }
  static BARACUDA_D State leaf(A x, i64 r) { return {x, r}; }
  static BARACUDA_D State merge(State a, State b) {
    return b.index >= 0 && (b.value != b.value || b.value >= a.value) ? b : a;  // nothing is >= NaN but NaN
  }
  static BARACUDA_D T value(State s) { return cast<T>(s.value); }
};
template <class T> struct Cummin : Cummax<T> {
  using State = typename Cummax<T>::State;
  static BARACUDA_D State empty() { return {numeric<acc_t<T>>::top(), -1}; }
  static BARACUDA_D State merge(State a, State b) {
    return b.index >= 0 && (b.value != b.value || b.value <= a.value) ? b : a;
  }
};

}  // namespace baracuda::kinds
