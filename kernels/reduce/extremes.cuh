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

// NaN is passed over: the place of no number is -1.
template <class T, class Op, class Value> struct NanPlace : Place<T, Op, Value> {
  using Base = Place<T, Op, Value>;
  using typename Base::A;
  using typename Base::State;
  static BARACUDA_D i64 finish(State s, const Reduced&) { return s.index == Base::nowhere ? -1 : s.index; }

  struct Lane {
    State best = Base::empty();
    template <int V> BARACUDA_D void add(const Vec<A, V>& x, i64 left, i64 index) {
#pragma unroll
      for (int k = 0; k < V; ++k) {
        if (k < left && !math::isnan(x[k])) best = Base::merge(best, State{x[k], index + k});
      }
    }
    BARACUDA_D State state() const { return best; }
  };
};
template <class T> struct Nanargmax : NanPlace<T, ArgMax, Amax<T>> {};
template <class T> struct Nanargmin : NanPlace<T, ArgMin, Amin<T>> {};

}  // namespace baracuda::kinds
