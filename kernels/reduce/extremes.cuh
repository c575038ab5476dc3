#pragma once
// extremes   extremes and their places: functors of baracuda/reduce_axes.cuh, over elements T.
#include <baracuda/complex.cuh>
#include <baracuda/reduce_axes.cuh>

namespace baracuda::kinds {

// ---- extremes -------------------------------------------------------------------------------------------------------

// What an order begins with, and which of two values it keeps; NaN wins.
struct Largest {
  template <class A> static BARACUDA_D A none() { return numeric<A>::bottom(); }
  template <class A> static BARACUDA_D A keep(A a, A b) { return math::maximum(a, b); }
};
struct Smallest {
  template <class A> static BARACUDA_D A none() { return numeric<A>::top(); }
  template <class A> static BARACUDA_D A keep(A a, A b) { return math::minimum(a, b); }
};

template <class T, class Order> struct Extreme {
  using A = acc_t<T>;
  using State = A;
  using Result = T;
  using Lane = Fold<Extreme>;
  static BARACUDA_D T fill() { return Order::template none<T>(); }
  static BARACUDA_D State empty() { return Order::template none<A>(); }
  static BARACUDA_D State leaf(A x) { return x; }
  static BARACUDA_D State merge(State a, State b) { return Order::keep(a, b); }
  static BARACUDA_D Result finish(State s, const Reduced&) { return cast<T>(s); }
};
template <class T> struct Amax : Extreme<T, Largest> {};
template <class T> struct Amin : Extreme<T, Smallest> {};

template <class T> struct Nanmax : Amax<T> {  // NaN only where all are
  using A = acc_t<T>;
  using Lane = Fold<Nanmax>;
  static BARACUDA_D T fill() { return numeric<T>::nan(); }
  static BARACUDA_D A empty() { return numeric<A>::nan(); }
  static BARACUDA_D A merge(A a, A b) { return math::fmax(a, b); }
};
template <class T> struct Nanmin : Amin<T> {
  using A = acc_t<T>;
  using Lane = Fold<Nanmin>;
  static BARACUDA_D T fill() { return numeric<T>::nan(); }
  static BARACUDA_D A empty() { return numeric<A>::nan(); }
  static BARACUDA_D A merge(A a, A b) { return math::fmin(a, b); }
};

// Norms of infinite order: the largest and the smallest magnitude.
template <class T> struct MaxNorm : Amax<T> {
  using A = acc_t<T>;
  using Lane = Fold<MaxNorm>;
  static BARACUDA_D T fill() { return T(0.0f); }
  static BARACUDA_D A empty() { return A(0); }
  static BARACUDA_D A leaf(A x) { return math::abs(x); }
};
template <class T> struct MinNorm : Amin<T> {
  using Lane = Fold<MinNorm>;
  static BARACUDA_D acc_t<T> leaf(acc_t<T> x) { return math::abs(x); }
};

// Of complex numbers, whose magnitudes are in double.
template <class R, class Order> struct ExtremeNorm : Extreme<double, Order> {
  using Result = R;
  using Lane = Fold<ExtremeNorm>;
  static constexpr bool largest = is_same<Order, Largest>;
  static BARACUDA_D complex<R> fill() { return largest ? R(0) : numeric<R>::infinity(); }
  static BARACUDA_D double empty() { return largest ? 0.0 : numeric<double>::infinity(); }
  static BARACUDA_D double leaf(complex<R> z) {
    return math::hypot(static_cast<double>(z.re), static_cast<double>(z.im));
  }
  static BARACUDA_D R finish(double s, const Reduced&) { return cast<R>(s); }
};
template <class R> struct MaxNorm<complex<R>> : ExtremeNorm<R, Largest> {};
template <class R> struct MinNorm<complex<R>> : ExtremeNorm<R, Smallest> {};

// The largest less the smallest; integers wrap in their own width.
template <class T> struct Ptp {
  using A = acc_t<T>;
  struct State {
    A low, high;
  };
  using Result = T;
  static BARACUDA_D T fill() { return T(0.0f); }
  static BARACUDA_D State empty() { return {numeric<A>::top(), numeric<A>::bottom()}; }
  static BARACUDA_D State merge(State a, State b) {
    return {math::minimum(a.low, b.low), math::maximum(a.high, b.high)};
  }
  static BARACUDA_D Result finish(State s, const Reduced&) {
    if constexpr (is_floating<T>) return cast<T>(s.high - s.low);
    else return static_cast<T>(static_cast<u64>(s.high) - static_cast<u64>(s.low));
  }

  struct Lane {
    State s = empty();
    template <int V> BARACUDA_D void add(const Vec<A, V>& x, i64 left, i64) {
#pragma unroll
      for (int k = 0; k < V; ++k) s = k < left ? merge(s, State{x[k], x[k]}) : s;
    }
    BARACUDA_D State state() const { return s; }
  };
};

}  // namespace baracuda::kinds
