#pragma once
// places     the place of an extreme: functors of baracuda/reduce_axes.cuh, over elements T.
#include "reduce/extremes.cuh"

namespace baracuda::kinds {

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
