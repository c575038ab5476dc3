// average    y[kept] = Σ w x / Σ w and z = Σ w over the reduced axes, x and w broadcast; schedule reduce over a map of
//            both. The gradient of weights that broadcast is a sum over a map, too, of dy (x - y) / z.
//
// Everything is in acc_t<T>. What fixes the order of the sums stands in baracuda/reduce_axes.cuh: the number of reduced
// elements, and their size.
#include <baracuda/reduce_axes.cuh>
#include "reduce/sums.cuh"

namespace baracuda {

template <class A> struct Weighted {
  A product, weight;
};

template <class T> struct Average {
  using A = acc_t<T>;
  using State = Weighted<A>;
  using Result = T;
  using Second = A;
  using Lane = Fold<Average>;
  static BARACUDA_D State fill() { return empty(); }
  static BARACUDA_D State empty() { return {A(0), A(0)}; }
  static BARACUDA_D State leaf(State x) { return x; }
  static BARACUDA_D State merge(State a, State b) { return {a.product + b.product, a.weight + b.weight}; }
  static BARACUDA_D Result finish(State s, const Reduced&) { return cast<T>(s.product / s.weight); }
  static BARACUDA_D Second second(State s, const Reduced&) { return s.weight; }
};

template <class T> struct Weighing {
  using Value = Weighted<acc_t<T>>;
  template <class P> BARACUDA_D explicit Weighing(const P&) {}
  template <class P> static BARACUDA_D void operands(const P& p, const void* (&x)[2]) { x[0] = p.x, x[1] = p.weights; }
  BARACUDA_D Value operator()(T x, T w) const { return {to_acc(x) * to_acc(w), to_acc(w)}; }
};

template <class T> struct WeightSlope {
  using Value = acc_t<T>;
  template <class P> BARACUDA_D explicit WeightSlope(const P&) {}
  template <class P> static BARACUDA_D void operands(const P& p, const void* (&x)[4]) {
    x[0] = p.dy, x[1] = p.x, x[2] = p.average, x[3] = p.z;
  }
  BARACUDA_D Value operator()(T dy, T x, T y, Value z) const { return to_acc(dy) * (to_acc(x) - to_acc(y)) / z; }
};

}  // namespace baracuda
