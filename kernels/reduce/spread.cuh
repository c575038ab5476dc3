#pragma once
// spread     variances, and kinds of two results: functors of baracuda/reduce_axes.cuh, over elements T.
#include "reduce/sums.cuh"

namespace baracuda::kinds {

// ---- variance -------------------------------------------------------------------------------------------------------

// Mean, sum of squared deviations from it, and count (Chan, Golub and LeVeque 1979), in double for every element. The
// mean is base, and offset what that lacks of it: so the difference of two means has digits however far off 0 they are.
struct Spread {
  double base, offset, m2, n;
};
// The spread whose mean is a sum (Knuth 1969); an infinite mean, or NaN, lacks nothing.
BARACUDA_D Spread spread_of(double base, double offset, double m2, double n) {
  const double mean = base + offset;
  if (!math::isfinite(mean)) return {mean, 0.0, m2, n};
  const double part = mean - base;
  return {mean, (base - (mean - part)) + (offset - part), m2, n};
}

// What a lane carries of float and double: deviations from its first element (Ling 1974), so no division an element. The
// mean of n numbers is at most sqrt(n) standard deviations from any of them, and a lane has at most 128.
template <class T> struct SpreadLane {
  double base = 0, sum = 0, squares = 0, n = 0;
  template <class A, int V> BARACUDA_D void add(const Vec<A, V>& x, i64 left, i64) {
    if (n == 0) base = static_cast<double>(x[0]);
    Vec<double, V> d;
    double odd = 0;
#pragma unroll
    for (int k = 0; k < V; ++k) {
      d[k] = k < left ? static_cast<double>(x[k]) - base : 0.0;
      if (k % 2 == 0) squares = math::fma(d[k], d[k], squares);
      else odd = math::fma(d[k], d[k], odd);
    }
    sum += tree_reduce<baracuda::Sum>(d);
    squares += odd;
    n += static_cast<double>(left < V ? static_cast<int>(left) : V);
  }
  BARACUDA_D Spread state() const {
    if (n == 0) return {0.0, 0.0, 0.0, 0.0};
    const double offset = sum / n, m2 = squares - sum * offset;
    return spread_of(base, offset, m2 < 0 ? 0.0 : m2, n);
  }
};

// Of 16-bit floats: deviations from the mean of the lane's first chunk, cut to as many digits as elements have, so that
// they and their squares are mostly exact in float; chunks are summed in double. That mean is at most sqrt(8) standard
// deviations from the lane's, which has 8 chunks: m2 is at least a ninth of the sum of squares, whose chunks err by
// 6 / 2^24 of themselves. A chunk whose squares may leave float's range is summed in double. MEAN: sum is of the
// elements themselves, in double, so that the mean errs as little as it can.
template <class T, bool MEAN> struct ShortSpreadLane {
  float base = 0;
  int n = 0;
  double sum = 0, squares = 0;

  template <int V> BARACUDA_D void add(Vec<float, V> x, i64 left, i64) {
    if constexpr (MEAN) {
#pragma unroll
      for (int k = 0; k < V; ++k) sum += static_cast<double>(x[k]);  // past the end there is 0
    }
    if (left < V) past_end(x, left, x[0]);
    if (n == 0) base = centre(x);
    if (left < V) past_end(x, left, base);
    n += left < V ? static_cast<int>(left) : V;
    Vec<float, V> d;
    float even = 0, odd = 0;
#pragma unroll
    for (int k = 0; k < V; ++k) {
      d[k] = x[k] - base;
      if (k % 2 == 0) even = math::fma(d[k], d[k], even);
      else odd = math::fma(d[k], d[k], odd);
    }
    const float square = even + odd;
    if (square > 0x1p-60f && square < 0x1p+100f) {
      squares += static_cast<double>(square);
      if (!MEAN) sum += static_cast<double>(tree_reduce<baracuda::Sum>(d));
    } else {
      add_wide(x);
    }
  }
  BARACUDA_D Spread state() const {
    if (n == 0) return {0.0, 0.0, 0.0, 0.0};
    const double count = static_cast<double>(n), mean = sum / count, from = static_cast<double>(base);
    const double offset = MEAN ? mean - from : mean, m2 = squares - offset * offset * count;
    const double spread = m2 < 0 ? 0.0 : m2;
    if constexpr (MEAN) return {mean, 0.0, spread, count};
    else return spread_of(from, offset, spread, count);
  }

 private:
  template <int V> static BARACUDA_D void past_end(Vec<float, V>& x, i64 left, float value) {
#pragma unroll
    for (int k = 1; k < V; ++k) x[k] = k < left ? x[k] : value;
  }
  template <int V> static BARACUDA_D float centre(const Vec<float, V>& x) {
    constexpr u32 digits = is_same<T, f16> ? 0xffffe000u : 0xffff0000u;
    Vec<float, V> part;
#pragma unroll
    for (int k = 0; k < V; ++k) part[k] = x[k] * (1.0f / V);
    const float mean = __uint_as_float(__float_as_uint(tree_reduce<baracuda::Sum>(part)) & digits);
    return math::isfinite(mean) ? mean : 0.0f;
  }
  template <int V> BARACUDA_D void add_wide(const Vec<float, V>& x) {
    bool same = true;
#pragma unroll
    for (int k = 0; k < V; ++k) same = same && x[k] == base;
    if (same) return;
#pragma unroll
    for (int k = 0; k < V; ++k) {
      const double d = static_cast<double>(x[k]) - static_cast<double>(base);
      squares = math::fma(d, d, squares);
      if (!MEAN) sum += d;
    }
  }
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
    const double n = a.n + b.n, delta = (b.base - a.base) + (b.offset - a.offset);
    double share = 0.5;
    if (a.n != b.n) share = b.n / n;  // lanes and segments mostly have as many
    return spread_of(a.base, math::fma(delta, share, a.offset), a.m2 + b.m2 + delta * delta * (a.n * share), n);
  }
  static BARACUDA_D double variance(const State& s, const Reduced& r) {
    return s.m2 / static_cast<double>(max<i64>(r.count - r.correction, 0));
  }
  static BARACUDA_D Result finish(State s, const Reduced& r) { return cast<T>(variance(s, r)); }

  using Lane = conditional<is_half<T>, ShortSpreadLane<T, false>, SpreadLane<T>>;
};

// A first element that lies farther from the mean than 0 does would leave its own rounding in the mean. Of doubles, whose
// sum may leave the range, a lane sums 256ths: it has at most 128 elements.
template <class T> struct MeanSpreadLane : SpreadLane<T> {
  static constexpr double unit = is_same<T, double> ? 0x1p-8 : 1.0;
  double total = 0;
  template <class A, int V> BARACUDA_D void add(const Vec<A, V>& x, i64 left, i64 index) {
    SpreadLane<T>::add(x, left, index);
    Vec<double, V> wide;
#pragma unroll
    for (int k = 0; k < V; ++k) wide[k] = static_cast<double>(x[k]) * unit;
    total += tree_reduce<baracuda::Sum>(wide);  // past the end there is 0
  }
  BARACUDA_D Spread state() const {
    Spread s = SpreadLane<T>::state();
    if (s.n == 0) return s;
    const double offset = this->sum / s.n, mean = total / s.n / unit;
    if (!(math::abs(offset) <= math::abs(mean))) s.base = mean, s.offset = 0.0;
    return s;
  }
};
// Where the mean counts, too. Deviations leave the range before their elements do, and those from an infinity are NaN:
// then the mean is that of the means.
template <class T> struct MeanSpread : Var<T> {
  static BARACUDA_D Spread merge(Spread a, Spread b) {
    Spread s = Var<T>::merge(a, b);
    if (a.n != 0 && b.n != 0 && !math::isfinite(s.base)) s.base = a.base * (a.n / s.n) + b.base * (b.n / s.n);
    return s;
  }

  using Lane = conditional<is_half<T>, ShortSpreadLane<T, true>, MeanSpreadLane<T>>;
};

// Of the elements that are numbers; the count is theirs, too.
template <class T> struct Nanvar : MeanSpread<T> {
  static BARACUDA_D double variance(const Spread& s, const Reduced& r) {
    return s.m2 / max(s.n - static_cast<double>(r.correction), 0.0);
  }
  static BARACUDA_D T finish(Spread s, const Reduced& r) { return cast<T>(variance(s, r)); }

  struct Lane : SpreadLane<T> {
    double scaled = 0;  // a 256th of the sum, as above, of the elements themselves
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
        if (is_same<T, double>) scaled += number ? value * 0x1p-8 : 0.0;
      }
    }
    BARACUDA_D Spread state() const {
      Spread s = SpreadLane<T>::state();
      if (is_same<T, double> && s.n != 0 && !math::isfinite(s.base)) s.base = scaled / s.n * 0x1p8, s.offset = 0.0;
      return s;
    }
  };
};
template <class T> struct Nanstd : Nanvar<T> {
  static BARACUDA_D T finish(Spread s, const Reduced& r) { return cast<T>(math::sqrt(Nanvar<T>::variance(s, r))); }
};

template <class T> struct Std : Var<T> {
  static BARACUDA_D T finish(Spread s, const Reduced& r) { return cast<T>(math::sqrt(Var<T>::variance(s, r))); }
};

// Of complex numbers, whose means a launch before finds: the sum of squared distances from them, in double.
template <class T> struct Distance {
  using Value = double;
  template <class P> BARACUDA_D explicit Distance(const P&) {}
  template <class P> static BARACUDA_D void operands(const P& p, const void* (&x)[2]) { x[0] = p.x, x[1] = p.means; }
  BARACUDA_D Value operator()(T z, complex<double> mean) const {
    const double re = static_cast<double>(z.re) - mean.re, im = static_cast<double>(z.im) - mean.im;
    return re * re + im * im;
  }
};
template <class R> struct Var<complex<R>> : Sum<double> {
  using Result = R;
  static BARACUDA_D double variance(double s, const Reduced& r) {
    return s / static_cast<double>(max<i64>(r.count - r.correction, 0));
  }
  static BARACUDA_D R finish(double s, const Reduced& r) { return cast<R>(variance(s, r)); }
};
template <class R> struct Std<complex<R>> : Var<complex<R>> {
  static BARACUDA_D R finish(double s, const Reduced& r) {
    return cast<R>(math::sqrt(Var<complex<R>>::variance(s, r)));
  }
};

}  // namespace baracuda::kinds
