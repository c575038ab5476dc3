#pragma once
// pairs      reductions with two results: functors of baracuda/reduce_axes.cuh, over elements T.
#include "reduce/extremes.cuh"
#include "reduce/places.cuh"
#include "reduce/spread.cuh"

namespace baracuda::kinds {

template <class T> struct MaxWithIndex : Argmax<T> {
  using Result = T;
  using Second = i64;
  using typename Argmax<T>::State;
  static BARACUDA_D Result finish(State s, const Reduced&) { return cast<T>(s.value); }
  static BARACUDA_D Second second(State s, const Reduced&) { return s.index; }
};
template <class T> struct MinWithIndex : Argmin<T> {
  using Result = T;
  using Second = i64;
  using typename Argmin<T>::State;
  static BARACUDA_D Result finish(State s, const Reduced&) { return cast<T>(s.value); }
  static BARACUDA_D Second second(State s, const Reduced&) { return s.index; }
};
template <class T> struct Aminmax : Ptp<T> {
  using Result = T;
  using Second = T;
  using typename Ptp<T>::State;
  static BARACUDA_D Result finish(State s, const Reduced&) { return cast<T>(s.low); }
  static BARACUDA_D Second second(State s, const Reduced&) { return cast<T>(s.high); }
};
template <class T> struct VarMean : MeanSpread<T> {
  using Second = T;
  static BARACUDA_D Second second(Spread s, const Reduced&) {
    return cast<T>(s.n == 0 ? numeric<double>::nan() : s.base);
  }
};
template <class T> struct StdMean : VarMean<T> {
  static BARACUDA_D T finish(Spread s, const Reduced& r) { return Std<T>::finish(s, r); }
};

}  // namespace baracuda::kinds
