#pragma once
// gradients  of the scans, over elements T; kinds of baracuda/scan_axis.cuh. Each scans against the forward one, from the
//            gradient of what the forward row ended in to that of what it began with. Products: scan/recurrence.cuh.
#include "scan/kinds.cuh"
#include "scan/recurrence.cuh"

namespace baracuda::kinds {

template <class T> using CumsumBackward = Prefixes<T, RunningSum<T>>;  // dx = the sums of dy from the other end

// The same, and nothing for a NaN of x. Inputs dy, x.
template <class T> struct NancumsumBackward : CumsumBackward<T> {
  using Base = CumsumBackward<T>;
  using Ins = Types<T, T>;
  template <class P> BARACUDA_D NancumsumBackward(const P& p, const ScanPlaces& at) : Base(p, at) {}
  template <class Y, class X> BARACUDA_D void put(const Y& y, const typename Base::State& s, const X& x, i64 r) const {
    Base::put(y, s, x, r);
    if (math::isnan(cast<acc_t<T>>(x.template at<1>()))) y.template at<0>() = T(0.0f);
  }
};

// The forward's result in its accumulator: of 16-bit floats the exponential would multiply the rounding of y.
template <class T> struct LogcumsumexpInFull : Logcumsumexp<T> {
  using Base = Logcumsumexp<T>;
  using Outs = Types<acc_t<T>>;
  template <class P> BARACUDA_D LogcumsumexpInFull(const P& p, const ScanPlaces& at) : Base(p, at) {}
  template <class Y, class X> BARACUDA_D void put(const Y& y, const typename Base::State& s, const X&, i64) const {
    y.template at<0>() = RunningLogSum<T>::template value<acc_t<T>>(s);
  }
};

// dx[i] = exp(x[i]) times the sum of dy[j] exp(-y[j]) over the j from i on, in logarithms, those of dy > 0 and of dy < 0
// apart. Where y is -inf there is nothing to hand back. Inputs dy, y in full, x; a row begins with the gradient of what it ended
// in (begin0), and knows what that was, the last y (exclusive: with the last x), and what it began with (begin1).
template <class T> struct LogcumsumexpBackward {
  using element = T;
  using A = acc_t<T>;
  using Sum = RunningLogSum<T>;
  struct State {
    MaxSum<A> positive, negative;
  };
  using Ins = Types<T, A, T>;
  using Outs = Types<T>;
  static constexpr int leaves = 2;
  static constexpr bool halo = false;
  const A *dlast, *first;
  A* dfirst;
  const A* sums;    // y of the scan's first element
  const T* values;  // x of it
  bool some, exclusive;

  template <class P>
  BARACUDA_D LogcumsumexpBackward(const P& p, const ScanPlaces& at)
      : dlast(scan_own<A>(p.begin0, at[scan_begins])), first(scan_own<A>(p.begin1, at[scan_begins + 1])),
        dfirst(scan_own<A>(p.end0, at[scan_ends])),
        sums(static_cast<const A*>(p.in1) + at[1] + scan_place(p, 0) * p.step[1]),
        values(static_cast<const T*>(p.in2) + at[2] + scan_place(p, 0) * p.step[2]), some(p.cols > 0),
        exclusive(p.exclusive) {}
  static BARACUDA_D int shift(int) { return 0; }
  static BARACUDA_D State empty() { return {Sum::empty(), Sum::empty()}; }
  static BARACUDA_D State merge(const State& a, const State& b) {
    return {Sum::merge(a.positive, b.positive), Sum::merge(a.negative, b.negative)};
  }
  static BARACUDA_D State weight(A slope, A sum) {
    State s = empty();
    if (sum == numeric<A>::bottom() || (slope == A(0) && sum == sum)) return s;
    const MaxSum<A> one = {math::log(math::abs(slope)) - sum, A(1)};
    if (slope < A(0)) s.negative = one;
    else s.positive = one;
    return s;
  }
  static BARACUDA_D A slope(const State& s, A x) {
    return math::exp(Sum::template value<A>(s.positive) + x) - math::exp(Sum::template value<A>(s.negative) + x);
  }
  BARACUDA_D A before() const { return first == nullptr ? numeric<A>::bottom() : *first; }
  BARACUDA_D State begin() const {
    if (dlast == nullptr) return empty();
    A sum = some ? *sums : before();
    if (some && exclusive) sum = Sum::template value<A>(Sum::merge(Sum::of(sum), Sum::of(cast<A>(*values))));
    return weight(*dlast, sum);
  }
  template <class X> BARACUDA_D State leaf(const X& x, i64) const {
    return weight(cast<A>(x.template at<0>()), x.template at<1>());
  }
  template <class Y, class X> BARACUDA_D void put(const Y& y, const State& s, const X& x, i64) const {
    y.template at<0>() = cast<T>(slope(s, cast<A>(x.template at<2>())));
  }
  BARACUDA_D void end(const State& s) const {
    if (dfirst != nullptr) *dfirst = slope(s, before());
  }
};

// dx[i] = the sum of dy over the elements whose extreme stands at i: a run of equal indices that begins at i. Inputs dy,
// indices; what a row began with gets the run that begins at no place of its own. The same for cummax and cummin.
template <class T> struct ExtremesBackward {
  using element = T;
  using A = acc_t<T>;
  using Sum = RunningSum<T>;
  enum Extent { nothing, run, runs };
  struct State {  // of the last run, and whether there is any other
    typename Sum::State sum;
    i64 index;
    i64 extent;
  };
  using Ins = Types<T, i64>;
  using Outs = Types<T>;
  static constexpr int leaves = 2;
  static constexpr bool halo = false;
  const T* dlast;
  T* dfirst;
  const i64* indices;  // of the scan's first element
  i64 origin, step, count;

  template <class P>
  BARACUDA_D ExtremesBackward(const P& p, const ScanPlaces& at)
      : dlast(scan_own<T>(p.begin0, at[scan_begins])), dfirst(scan_own<T>(p.end0, at[scan_ends])),
        indices(static_cast<const i64*>(p.in1) + at[1] + scan_place(p, 0) * p.step[1]),
        origin(p.offset() + scan_place(p, 0)), step(p.reverse ? -1 : 1), count(p.cols) {}
  static BARACUDA_D int shift(int) { return 0; }
  static BARACUDA_D State empty() { return {Sum::empty(), 0, nothing}; }
  static BARACUDA_D State merge(const State& a, const State& b) {
    if (b.extent == nothing) return a;
    if (a.extent == nothing) return b;
    if (b.extent == run && a.index == b.index) return {Sum::merge(a.sum, b.sum), b.index, a.extent};
    return {b.sum, b.index, runs};
  }
  BARACUDA_D State begin() const {
    if (dlast == nullptr) return empty();
    return {Sum::of(cast<A>(*dlast)), count > 0 ? *indices : 0, run};
  }
  template <class X> BARACUDA_D State leaf(const X& x, i64) const {
    return {Sum::of(cast<A>(x.template at<0>())), x.template at<1>(), run};
  }
  template <class Y, class X> BARACUDA_D void put(const Y& y, const State& s, const X&, i64 r) const {
    y.template at<0>() = s.index == origin + r * step ? Sum::template value<T>(s.sum) : T(0.0f);
  }
  BARACUDA_D void end(const State& s) const {
    if (dfirst == nullptr) return;
    const bool own = count > 0 && s.index == origin + (count - 1) * step;
    *dfirst = own ? T(0.0f) : Sum::template value<T>(s.sum);
  }
};
template <class T> using CummaxBackward = ExtremesBackward<T>;
template <class T> using CumminBackward = ExtremesBackward<T>;

}  // namespace baracuda::kinds
