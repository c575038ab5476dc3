#pragma once
// norms      norms that carry more than the element: functors of baracuda/reduce_axes.cuh, over elements T.
#include "reduce/sums.cuh"

namespace baracuda::kinds {

// ---- 2-norm ---------------------------------------------------------------------------------------------------------

// Squares of floats are exact in double, and in range. Those of doubles are summed in three ranges (Blue 1978): as they
// are, of |x| > 2^400 times 2^-1200, of |x| < 2^-400 times 2^1200.
struct Squares {
  double middle, large, small;
};
template <class T> struct L2Norm {
  using A = acc_t<T>;
  static constexpr bool ranges = is_same<T, double>;
  using State = conditional<ranges, Squares, double>;
  using Result = T;
  using Lane = Fold<L2Norm>;
  static BARACUDA_D T fill() { return T(0.0f); }
  static BARACUDA_D State empty() { return State{}; }
  static BARACUDA_D State leaf(A value) {
    const double x = static_cast<double>(value);
    if constexpr (ranges) {
      const double size = math::abs(x), large = x * 0x1p-600, small = x * 0x1p+600;
      if (size > 0x1p+400) return {0.0, large * large, 0.0};
      if (size < 0x1p-400) return {0.0, 0.0, small * small};
      return {x * x, 0.0, 0.0};  // NaN too
    } else {
      return x * x;
    }
  }
  static BARACUDA_D State merge(State a, State b) {
    if constexpr (ranges) return {a.middle + b.middle, a.large + b.large, a.small + b.small};
    else return a + b;
  }
  static BARACUDA_D Result finish(State s, const Reduced&) {
    if constexpr (!ranges) {
      return cast<T>(math::sqrt(s));
    } else {
      if (s.large != 0) return math::sqrt(s.large + s.middle * 0x1p-600 * 0x1p-600) * 0x1p+600;
      if (s.middle == 0) return math::sqrt(s.small) * 0x1p-600;
      return math::sqrt(s.middle + s.small * 0x1p-600 * 0x1p-600);
    }
  }
};

// Of complex numbers, the squares of both parts; the result is real.
template <class R> struct L2Norm<complex<R>> : L2Norm<R> {
  using Base = L2Norm<R>;
  using Lane = Fold<L2Norm>;
  static BARACUDA_D complex<R> fill() { return R(0); }
  static BARACUDA_D typename Base::State leaf(complex<R> z) { return Base::merge(Base::leaf(z.re), Base::leaf(z.im)); }
};

// ---- p-norm ---------------------------------------------------------------------------------------------------------

// (Σ |x|^p)^(1/p) as top (Σ (|x| / top)^p)^(1/p), top the largest magnitude for p > 0 and the smallest for p < 0: no
// power leaves the range. In double for every element; p travels with the states.
struct Powers {
  double top, sum, p, unused;
};
template <class T> struct Magnitude {
  using Value = Powers;
  double p;
  template <class P> BARACUDA_D explicit Magnitude(const P& params) : p(params.p) {}
  template <class P> static BARACUDA_D void operands(const P& params, const void* (&x)[1]) { x[0] = params.x; }
  BARACUDA_D Value operator()(T x) const { return {size(x), 1.0, p, 0.0}; }
  static BARACUDA_D double size(T x) {
    if constexpr (is_complex<T>) return math::hypot(static_cast<double>(x.re), static_cast<double>(x.im));
    else return math::abs(static_cast<double>(to_acc(x)));
  }
};
template <class T> struct PNorm {
  using State = Powers;
  using Result = part_t<T>;
  using Lane = Fold<PNorm>;
  static BARACUDA_D State fill() { return empty(); }
  static BARACUDA_D State empty() { return {0.0, 0.0, 0.0, 0.0}; }
  static BARACUDA_D State leaf(State x) { return x; }
  static BARACUDA_D State merge(State a, State b) {
    if (a.sum == 0) return b;
    if (b.sum == 0) return a;
    const bool swap = (b.top > a.top) == (a.p > 0);
    const State high = swap ? b : a, low = swap ? a : b;
    const double share = low.top == high.top ? 1.0 : math::pow(low.top / high.top, a.p);  // of zeros and infinities too
    const double top = math::isnan(a.top) ? a.top : math::isnan(b.top) ? b.top : high.top;
    return {top, math::fma(low.sum, share, high.sum), a.p, 0.0};
  }
  static BARACUDA_D Result finish(State s, const Reduced&) {
    return cast<Result>(s.sum == 0 ? 0.0 : s.top * math::pow(s.sum, 1.0 / s.p));
  }
};

}  // namespace baracuda::kinds
