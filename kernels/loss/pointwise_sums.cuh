#pragma once
// pointwise_sums  a sum of losses that finish divides, in acc_t<T>; and the sum of losses and that of their weights.
#include <baracuda/reduce_axes.cuh>

namespace baracuda {

template <class T> struct LossSum {
  using A = acc_t<T>;
  using State = A;
  using Result = A;
  using Lane = Fold<LossSum>;
  using TakesParameters = void;
  static BARACUDA_D State fill() { return A(0); }
  static BARACUDA_D State empty() { return A(0); }
  static BARACUDA_D State leaf(A x) { return x; }
  static BARACUDA_D State merge(State a, State b) { return a + b; }
  template <class P> static BARACUDA_D Result finish(State s, const Reduced&, const P& p) {
    return p.divided ? s / static_cast<A>(p.divisor) : s;
  }
};

template <class A> struct WeightedLoss {
  A loss, weight;
};

template <class T> struct WeightedLossSum {
  using A = acc_t<T>;
  using State = WeightedLoss<A>;
  using Result = A;
  using Lane = Fold<WeightedLossSum>;
  using TakesParameters = void;
  static BARACUDA_D State fill() { return empty(); }
  static BARACUDA_D State empty() { return {A(0), A(0)}; }
  static BARACUDA_D State leaf(State x) { return x; }
  static BARACUDA_D State merge(State a, State b) { return {a.loss + b.loss, a.weight + b.weight}; }
  template <class P> static BARACUDA_D Result finish(State s, const Reduced&, const P& p) {
    if (p.divided == 2) return s.loss / s.weight;
    return p.divided ? s.loss / static_cast<A>(p.divisor) : s.loss;
  }
};

}  // namespace baracuda
