#pragma once
// logsumexp  log of a sum of exponentials: functors of baracuda/reduce_axes.cuh, over elements T.
#include <baracuda/reduce_axes.cuh>

namespace baracuda::kinds {

template <class T> struct Logsumexp {
  using A = acc_t<T>;
  using State = MaxSum<A>;
  using Result = T;
  static BARACUDA_D T fill() { return numeric<T>::bottom(); }
  static BARACUDA_D State empty() { return {numeric<A>::bottom(), A(0)}; }
  static BARACUDA_D State merge(State a, State b) { return LogSumExp::apply(a, b); }
  static BARACUDA_D Result finish(State s, const Reduced&) { return cast<T>(s.max + math::log(s.sum)); }

  struct Lane {
    State s = empty();
    template <int V> BARACUDA_D void add(const Vec<A, V>& x, i64, i64) {
      const A top = tree_reduce<Max>(x);
      const A shift = math::isfinite(top) ? top : A(0);  // an infinity less itself is NaN
      Vec<A, V> e;
#pragma unroll
      for (int k = 0; k < V; ++k) e[k] = math::exp(x[k] - shift);
      s = merge(s, State{top, tree_reduce<baracuda::Sum>(e)});
    }
    BARACUDA_D State state() const { return s; }
  };
};

template <class T> struct Logmeanexp : Logsumexp<T> {
  using A = acc_t<T>;
  static BARACUDA_D T finish(MaxSum<A> s, const Reduced& r) {
    return cast<T>(s.max + math::log(s.sum / static_cast<A>(r.count)));
  }
};

}  // namespace baracuda::kinds
