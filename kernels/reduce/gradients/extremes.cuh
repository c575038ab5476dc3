#pragma once
// extremes  gradients of extremes: dy divided evenly among the elements that are it.
#include "reduce/extremes.cuh"
#include "reduce/gradients/directions.cuh"

namespace baracuda {

namespace kinds {

template <class A> struct Ties {
  A value;
  i64 count;
  BARACUDA_D bool has(A x) const { return x == value || (math::isnan(x) && math::isnan(value)); }
};
template <class A> BARACUDA_D Ties<A> merge_ties(const Ties<A>& a, const Ties<A>& b, A value) {
  return {value, (a.has(value) ? a.count : 0) + (b.has(value) ? b.count : 0)};
}

// Of what K, an extreme, makes of x; NaN is passed over where K passes it over.
template <class K, class T> struct TiesOf {
  using A = typename K::State;
  using State = Ties<A>;
  using Result = State;
  static BARACUDA_D T fill() { return K::fill(); }
  static BARACUDA_D State empty() { return {K::empty(), 0}; }
  static BARACUDA_D State merge(State a, State b) { return merge_ties(a, b, K::merge(a.value, b.value)); }
  static BARACUDA_D Result finish(State s, const Reduced&) { return s; }

  struct Lane {
    A value = K::empty();
    int count = 0;
    static BARACUDA_D bool same(A a, A b) { return Ties<A>{a, 0}.has(b); }
    template <int V> BARACUDA_D void add(const Vec<acc_t<T>, V>& x, i64 left, i64) {
      A top = K::leaf(x[0]);
#pragma unroll
      for (int k = 1; k < V; ++k) top = K::merge(top, K::leaf(x[k]));
      int here = 0;
      if (math::isnan(top)) {
#pragma unroll
        for (int k = 0; k < V; ++k) here += math::isnan(K::leaf(x[k]));
      } else {
#pragma unroll
        for (int k = 0; k < V; ++k) here += K::leaf(x[k]) == top;
      }
      if (left < V && same(K::leaf(x[V - 1]), top)) here -= V - static_cast<int>(left);  // past the end all are alike
      const A both = K::merge(value, top);
      count = (same(value, both) ? count : 0) + (same(top, both) ? here : 0);
      value = both;
    }
    BARACUDA_D State state() const { return {value, count}; }
  };
};

template <class A> struct BothTies {
  Ties<A> low, high;
};
template <class T> struct BothTiesOf {
  using Low = TiesOf<Amin<T>, T>;
  using High = TiesOf<Amax<T>, T>;
  using A = acc_t<T>;
  using State = BothTies<A>;
  using Result = State;
  static BARACUDA_D T fill() { return T(0.0f); }
  static BARACUDA_D State empty() { return {Low::empty(), High::empty()}; }
  static BARACUDA_D State merge(State a, State b) { return {Low::merge(a.low, b.low), High::merge(a.high, b.high)}; }
  static BARACUDA_D Result finish(State s, const Reduced&) { return s; }

  struct Lane {
    typename Low::Lane low;
    typename High::Lane high;
    template <int V> BARACUDA_D void add(const Vec<A, V>& x, i64 left, i64 index) {
      low.add(until(x, left, Low::empty().value), left, index);
      high.add(until(x, left, High::empty().value), left, index);
    }
    template <int V> static BARACUDA_D Vec<A, V> until(const Vec<A, V>& x, i64 left, A beyond) {
      Vec<A, V> held;
#pragma unroll
      for (int k = 0; k < V; ++k) held[k] = k < left ? x[k] : beyond;
      return held;
    }
    BARACUDA_D State state() const { return {low.state(), high.state()}; }
  };
};

}  // namespace kinds

// K is the extreme of x itself, or of its magnitude; it may pass NaN over.
template <class K, class T, bool MAGNITUDE = false, bool SKIPS_NAN = false> struct SharedExtreme {
  static constexpr int reads = reads_dy | reads_x | reads_statistic;
  using Statistic = kinds::TiesOf<K, T>;
  using A = acc_t<T>;
  A dy;
  kinds::Ties<A> ties;
  template <class Row>
  BARACUDA_D SharedExtreme(const Row& row, const GradientFacts&)
      : dy(row.dy / static_cast<A>(row.statistic.count)), ties(row.statistic) {}
  BARACUDA_D A operator()(A x, i64) const {
    if (!ties.has(K::leaf(x)) || (SKIPS_NAN && math::isnan(x))) return A(0);
    return MAGNITUDE ? dy * sign_of(x) : dy;
  }
};
template <class T> struct Gradient<kinds::Amax<T>> : SharedExtreme<kinds::Amax<T>, T> {
  using SharedExtreme<kinds::Amax<T>, T>::SharedExtreme;
};
template <class T> struct Gradient<kinds::Amin<T>> : SharedExtreme<kinds::Amin<T>, T> {
  using SharedExtreme<kinds::Amin<T>, T>::SharedExtreme;
};
template <class T> struct Gradient<kinds::Nanmax<T>> : SharedExtreme<kinds::Nanmax<T>, T, false, true> {
  using SharedExtreme<kinds::Nanmax<T>, T, false, true>::SharedExtreme;
};
template <class T> struct Gradient<kinds::Nanmin<T>> : SharedExtreme<kinds::Nanmin<T>, T, false, true> {
  using SharedExtreme<kinds::Nanmin<T>, T, false, true>::SharedExtreme;
};
template <class T> struct Gradient<kinds::MaxNorm<T>> : SharedExtreme<kinds::MaxNorm<T>, T, true> {
  using SharedExtreme<kinds::MaxNorm<T>, T, true>::SharedExtreme;
};
template <class T> struct Gradient<kinds::MinNorm<T>> : SharedExtreme<kinds::MinNorm<T>, T, true> {
  using SharedExtreme<kinds::MinNorm<T>, T, true>::SharedExtreme;
};

// low goes to the smallest elements, high to the largest.
template <class T> struct SharedEnds {
  static constexpr int reads = reads_dy | reads_x | reads_statistic;
  using Statistic = kinds::BothTiesOf<T>;
  using A = acc_t<T>;
  A low, high;
  typename Statistic::State ties;
  BARACUDA_D SharedEnds(A low, A high, const typename Statistic::State& ties)
      : low(low / static_cast<A>(ties.low.count)), high(high / static_cast<A>(ties.high.count)), ties(ties) {}
  BARACUDA_D A operator()(A x, i64) const { return (ties.low.has(x) ? low : A(0)) + (ties.high.has(x) ? high : A(0)); }
};
template <class T> struct Gradient<kinds::Ptp<T>> : SharedEnds<T> {
  template <class Row>
  BARACUDA_D Gradient(const Row& row, const GradientFacts&) : SharedEnds<T>(-row.dy, row.dy, row.statistic) {}
};
// dy divided evenly among the elements whose magnitude is the extreme.
template <class K, class R> struct SharedSize {
  static constexpr int reads = reads_dy | reads_x | reads_statistic;
  using Given = R;
  using Statistic = kinds::TiesOf<K, complex<R>>;
  double dy;
  kinds::Ties<double> ties;
  template <class Row>
  BARACUDA_D SharedSize(const Row& row, const GradientFacts&)
      : dy(row.dy / static_cast<double>(row.statistic.count)), ties(row.statistic) {}
  BARACUDA_D complex<double> operator()(complex<R> z, i64) const {
    if (!ties.has(K::leaf(z))) return 0.0;
    return directed(in_double(z), dy);
  }
};
template <class R> struct Gradient<kinds::MaxNorm<complex<R>>> : SharedSize<kinds::MaxNorm<complex<R>>, R> {
  using SharedSize<kinds::MaxNorm<complex<R>>, R>::SharedSize;
};
template <class R> struct Gradient<kinds::MinNorm<complex<R>>> : SharedSize<kinds::MinNorm<complex<R>>, R> {
  using SharedSize<kinds::MinNorm<complex<R>>, R>::SharedSize;
};

}  // namespace baracuda
