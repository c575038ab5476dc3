#pragma once
// kinds      the scans: what a kind of baracuda/scan_axis.cuh carries, over elements T.
//
// A scan has long chains of merges, so sums and products of floats carry more than their accumulator: results are rounded
// once, however long the row. What a row begins with and ends in, where a caller asks, has the accumulator's element.
#include <baracuda/scan_axis.cuh>
#include <baracuda/scan_neighbours.cuh>
#include "reduce/prod.cuh"
#include "reduce/sums.cuh"

namespace baracuda::kinds {

// The element of what a row begins with and ends in: float of 16-bit floats, else that of the results.
template <class T> using carried_t = conditional<is_floating<T>, acc_t<T>, total_t<T>>;

// ---- what is carried ------------------------------------------------------------------------------------------------

// hi + lo is a sum of doubles to twice their digits (Knuth 1969).
struct DoubleSum {
  double hi, lo;
};
template <class T> struct RunningSum {
  static constexpr bool wide = is_same<T, double>;
  using State = conditional<wide, DoubleSum, conditional<is_floating<T>, double, u64>>;
  static BARACUDA_D State empty() { return State{}; }
  template <class A> static BARACUDA_D State of(A x) {
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
  template <class R> static BARACUDA_D R value(State s) {
    if constexpr (wide) return cast<R>(math::isfinite(s.hi) ? s.hi + s.lo : s.hi);  // beyond an infinity lo is NaN
    else return cast<R>(s);
  }
};

// Of complex numbers, that of their parts.
template <class R> struct RunningSum<complex<R>> {
  using Part = RunningSum<R>;
  struct State {
    typename Part::State re, im;
  };
  static BARACUDA_D State empty() { return {Part::empty(), Part::empty()}; }
  static BARACUDA_D State of(complex<R> x) { return {Part::of(x.re), Part::of(x.im)}; }
  static BARACUDA_D State merge(const State& a, const State& b) {
    return {Part::merge(a.re, b.re), Part::merge(a.im, b.im)};
  }
  template <class Out> static BARACUDA_D Out value(const State& s) {
    return {Part::template value<part_t<Out>>(s.re), Part::template value<part_t<Out>>(s.im)};
  }
};

template <class T> struct RunningProduct {
  using State = typename Prod<T>::State;
  static BARACUDA_D State empty() { return Prod<T>::empty(); }
  template <class A> static BARACUDA_D State of(A x) {
    if constexpr (Prod<T>::exact) return static_cast<State>(x);
    else return Product::of(x);
  }
  static BARACUDA_D State merge(State a, State b) { return Prod<T>::merge(a, b); }
  template <class R> static BARACUDA_D R value(State s) {
    if constexpr (Prod<T>::exact) return static_cast<R>(s);
    else return cast<R>(s.value());
  }
};

template <class R> struct RunningProduct<complex<R>> {
  using Whole = Prod<complex<R>>;
  using State = typename Whole::State;
  static BARACUDA_D State empty() { return Whole::empty(); }
  static BARACUDA_D State of(complex<R> x) { return Whole::leaf(x); }
  static BARACUDA_D State merge(const State& a, const State& b) { return Whole::merge(a, b); }
  template <class Out> static BARACUDA_D Out value(const State& s) { return cast<Out>(Whole::finish(s, Reduced{})); }
};

template <class T> struct RunningLogSum {
  using A = acc_t<T>;
  using State = MaxSum<A>;
  static BARACUDA_D State empty() { return {numeric<A>::bottom(), A(0)}; }
  static BARACUDA_D State of(A x) { return {x, x == numeric<A>::bottom() ? A(0) : A(1)}; }
  static BARACUDA_D State merge(State a, State b) { return LogSumExp::apply(a, b); }
  template <class R> static BARACUDA_D R value(State s) { return cast<R>(s.max + math::log(s.sum)); }
};

// ---- prefixes -------------------------------------------------------------------------------------------------------

// y = the merge of the elements so far. SKIP: a NaN is passed over.
template <class T, class Carried, bool SKIP = false> struct Prefixes : Carried {
  using element = T;
  using State = typename Carried::State;
  using Ins = Types<T>;
  using Outs = Types<conditional<is_floating<T>, T, total_t<T>>>;
  using A = carried_t<T>;
  static constexpr int leaves = 1;
  static constexpr bool halo = false;
  const A* first;
  A* last;

  template <class P>
  BARACUDA_D Prefixes(const P& p, const ScanPlaces& at)
      : first(scan_own<A>(p.begin0, at[scan_begins])), last(scan_own<A>(p.end0, at[scan_ends])) {}
  static BARACUDA_D int shift(int) { return 0; }
  BARACUDA_D State begin() const { return first == nullptr ? Carried::empty() : Carried::of(*first); }
  template <class X> BARACUDA_D State leaf(const X& x, i64) const {
    const acc_t<T> value = cast<acc_t<T>>(x.template at<0>());
    if constexpr (SKIP) {
      if (math::isnan(value)) return Carried::empty();
    }
    return Carried::of(value);
  }
  template <class Y, class X> BARACUDA_D void put(const Y& y, const State& s, const X&, i64) const {
    y.template at<0>() = Carried::template value<typename Outs::first>(s);
  }
  BARACUDA_D void end(const State& s) const {
    if (last != nullptr) *last = Carried::template value<A>(s);
  }
};
template <class T> using Cumsum = Prefixes<T, RunningSum<T>>;
template <class T> using Cumprod = Prefixes<T, RunningProduct<T>>;
template <class T> using Logcumsumexp = Prefixes<T, RunningLogSum<T>>;
template <class T> using Nancumsum = Prefixes<T, RunningSum<T>, true>;
template <class T> using Nancumprod = Prefixes<T, RunningProduct<T>, true>;

// ---- extremes -------------------------------------------------------------------------------------------------------

// The extreme so far and its place: NaN wins, and of equals the last, as in PyTorch.
template <class T> struct LastMax {
  using A = acc_t<T>;
  static BARACUDA_D A none() {
    if constexpr (is_floating<T>) return numeric<A>::bottom();
    else return to_acc(numeric<T>::bottom());
  }
  static BARACUDA_D bool wins(A b, A a) { return b != b || b >= a; }  // nothing is >= NaN but NaN
};
template <class T> struct LastMin {
  using A = acc_t<T>;
  static BARACUDA_D A none() {
    if constexpr (is_floating<T>) return numeric<A>::top();
    else return to_acc(numeric<T>::top());
  }
  static BARACUDA_D bool wins(A b, A a) { return b != b || b <= a; }
};

template <class T, class Order> struct Extremes {
  using element = T;
  using A = acc_t<T>;
  using State = Indexed<A>;  // the index counts in the scan; `none` and `given` are of nothing and of what was before
  using Ins = Types<T>;
  using Outs = Types<T, i64>;
  static constexpr int leaves = 1;
  static constexpr bool halo = false;
  static constexpr i64 none = -1, given = -2;
  const T* first;
  const i64* first_index;
  T* last;
  i64* last_index;
  i64 origin, step;  // the index of element r is origin + r step

  template <class P>
  BARACUDA_D Extremes(const P& p, const ScanPlaces& at)
      : first(scan_own<T>(p.begin0, at[scan_begins])), first_index(scan_own<i64>(p.begin1, at[scan_begins + 1])),
        last(scan_own<T>(p.end0, at[scan_ends])), last_index(scan_own<i64>(p.end1, at[scan_ends + 1])),
        origin(p.offset() + scan_place(p, 0)), step(p.reverse ? -1 : 1) {}
  static BARACUDA_D int shift(int) { return 0; }
  static BARACUDA_D State empty() { return {Order::none(), none}; }
  BARACUDA_D State begin() const { return first == nullptr ? empty() : State{cast<A>(*first), given}; }
  template <class X> BARACUDA_D State leaf(const X& x, i64 r) const { return {cast<A>(x.template at<0>()), r}; }
  static BARACUDA_D State merge(const State& a, const State& b) {
    return b.index != none && Order::wins(b.value, a.value) ? b : a;
  }
  BARACUDA_D i64 index_of(i64 index) const {
    return index >= 0 ? origin + index * step : index == given ? *first_index : none;
  }
  template <class Y, class X> BARACUDA_D void put(const Y& y, const State& s, const X&, i64) const {
    y.template at<0>() = cast<T>(s.value);
    y.template at<1>() = index_of(s.index);
  }
  BARACUDA_D void end(const State& s) const {
    if (last != nullptr) *last = cast<T>(s.value);
    if (last_index != nullptr) *last_index = index_of(s.index);
  }
};
template <class T> using Cummax = Extremes<T, LastMax<T>>;
template <class T> using Cummin = Extremes<T, LastMin<T>>;

}  // namespace baracuda::kinds
