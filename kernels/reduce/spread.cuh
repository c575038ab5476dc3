#pragma once
// spread     variances, and kinds of two results: functors of baracuda/reduce_axes.cuh, over elements T.
#include "reduce/extremes.cuh"

namespace baracuda::kinds {

// ---- variance -------------------------------------------------------------------------------------------------------

// Mean = base + offset, sum of squared deviations from it, and count (Chan, Golub and LeVeque 1979), in double for every
// element. A base that is an element of the row keeps the difference of two means exact however far off 0 they are.
struct Spread {
  double base, offset, m2, n;
};
template <class T> struct Var {
  using A = acc_t<T>;
  using State = Spread;
  using Result = T;
  static BARACUDA_D T fill() { return T(0.0f); }
  static BARACUDA_D State empty() { return {0.0, 0.0, 0.0, 0.0}; }
  static BARACUDA_D State merge(State a, State b) {
    if (b.n == 0) return a;
    if (a.n == 0) return b;
    const double n = a.n + b.n, delta = (b.base - a.base) + (b.offset - a.offset), share = b.n / n;
    return {a.base, math::fma(delta, share, a.offset), a.m2 + b.m2 + delta * delta * (a.n * share), n};
  }
  static BARACUDA_D double variance(const State& s, const Reduced& r) {
    return s.m2 / static_cast<double>(max<i64>(r.count - r.correction, 0));
  }
  static BARACUDA_D Result finish(State s, const Reduced& r) { return cast<T>(variance(s, r)); }

  // Deviations from the lane's first element (Ling 1974): no division an element. The mean of n numbers is at most
  // sqrt(n) standard deviations from any of them, and a lane has at most 128.
  struct Lane {
    double base = 0, sum = 0, squares = 0, n = 0;
    template <int V> BARACUDA_D void add(const Vec<A, V>& x, i64 left, i64) {
      if (n == 0) base = static_cast<double>(x[0]);
      Vec<double, V> d, s;
#pragma unroll
      for (int k = 0; k < V; ++k) {
        d[k] = k < left ? static_cast<double>(x[k]) - base : 0.0;
        s[k] = d[k] * d[k];
      }
      sum += tree_reduce<baracuda::Sum>(d);
      squares += tree_reduce<baracuda::Sum>(s);
      n += static_cast<double>(left < V ? static_cast<int>(left) : V);
    }
    BARACUDA_D State state() const {
      if (n == 0) return empty();
      const double offset = sum / n, m2 = squares - sum * offset;
      return {base, offset, m2 < 0 ? 0.0 : m2, n};
    }
  };
};
// Where the mean counts, too: deviations from an infinite base are NaN; then offset is that of 0, so that the mean is
// infinite where it should be.
template <class T> struct MeanSpread : Var<T> {
  static BARACUDA_D Spread merge(Spread a, Spread b) {
    Spread s = Var<T>::merge(a, b);
    if (a.n != 0 && b.n != 0 && !math::isfinite(a.offset + b.offset)) s.offset = a.offset + b.offset;
    return s;
  }

  struct Lane : Var<T>::Lane {
    double total = 0;
    template <int V> BARACUDA_D void add(const Vec<acc_t<T>, V>& x, i64 left, i64 index) {
      Var<T>::Lane::add(x, left, index);
      total += tree_reduce<baracuda::Sum>(cast_vec<double>(x));  // past the end there is 0
    }
    BARACUDA_D Spread state() const {
      Spread s = Var<T>::Lane::state();
      if (s.n != 0 && !math::isfinite(s.offset)) s.base = 0.0, s.offset = total;
      return s;
    }
  };
};

// Of the elements that are numbers; the count is theirs, too.
template <class T> struct Nanvar : MeanSpread<T> {
  static BARACUDA_D double variance(const Spread& s, const Reduced& r) {
    return s.m2 / max(s.n - static_cast<double>(r.correction), 0.0);
  }
  static BARACUDA_D T finish(Spread s, const Reduced& r) { return cast<T>(variance(s, r)); }

  struct Lane : Var<T>::Lane {
    template <int V> BARACUDA_D void add(const Vec<acc_t<T>, V>& x, i64 left, i64) {
#pragma unroll
      for (int k = 0; k < V; ++k) {
        const bool number = k < left && !math::isnan(x[k]);
        const double value = static_cast<double>(x[k]);
        if (number && this->n == 0) this->base = math::isfinite(value) ? value : 0.0;
        const double d = number ? value - this->base : 0.0;
        this->sum += d;
        this->squares += d * d;
        this->n += number ? 1.0 : 0.0;
      }
    }
  };
};
template <class T> struct Nanstd : Nanvar<T> {
  static BARACUDA_D T finish(Spread s, const Reduced& r) { return cast<T>(math::sqrt(Nanvar<T>::variance(s, r))); }
};

template <class T> struct Std : Var<T> {
  static BARACUDA_D T finish(Spread s, const Reduced& r) { return cast<T>(math::sqrt(Var<T>::variance(s, r))); }
};

// ---- two results ----------------------------------------------------------------------------------------------------

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
    return cast<T>(s.n == 0 ? numeric<double>::nan() : s.base + s.offset);
  }
};
template <class T> struct StdMean : VarMean<T> {
  static BARACUDA_D T finish(Spread s, const Reduced& r) { return Std<T>::finish(s, r); }
};

// ---- in a wider element ---------------------------------------------------------------------------------------------

// x as elements of W, in which kinds<W> reduces it.
template <class T, class W> struct Widened {
  using Value = acc_t<W>;
  template <class P> BARACUDA_D explicit Widened(const P&) {}
  template <class P> static BARACUDA_D void operands(const P& p, const void* (&x)[1]) { x[0] = p.x; }
  BARACUDA_D Value operator()(T x) const { return cast<Value>(x); }
};

}  // namespace baracuda::kinds
