#pragma once
// norms      products and norms, which carry more than the element: functors of baracuda/reduce_axes.cuh, over elements T.
#include "reduce/products.cuh"
#include "reduce/sums.cuh"

namespace baracuda::kinds {

// ---- products -------------------------------------------------------------------------------------------------------

template <class T> struct Prod {
  using A = acc_t<T>;
  static constexpr bool exact = !is_floating<T>;
  using State = conditional<exact, u64, Product>;
  using Result = total_t<T>;
  using Lane = Fold<Prod>;
  static BARACUDA_D T fill() { return T(1.0f); }
  static BARACUDA_D State empty() { return leaf(A(1)); }
  static BARACUDA_D State leaf(A x) {
    if constexpr (exact) return static_cast<u64>(x);
    else return Product::of(x);
  }
  static BARACUDA_D State merge(State a, State b) {
    if constexpr (exact) return a * b;
    else return Product::merge(a, b);
  }
  static BARACUDA_D Result finish(State s, const Reduced&) {
    if constexpr (exact) return static_cast<Result>(s);
    else return cast<T>(s.value());
  }
};

// Of complex numbers: doubles serve complex<float>; of complex<double> hi + lo is the product. Partial products may leave
// the range of double. A factor that is infinite or NaN makes the product NaN in both parts: of two infinite parts the
// signs would depend on the order.
struct ComplexProduct {
  complex<double> hi, lo;
};
template <class R> struct Prod<complex<R>> {
  using C = complex<double>;
  static constexpr bool wide = is_same<R, double>;
  using State = conditional<wide, ComplexProduct, C>;
  using Result = complex<R>;
  using Lane = Fold<Prod>;
  static BARACUDA_D complex<R> fill() { return R(1); }
  static BARACUDA_D State empty() { return state(C(1.0)); }
  static BARACUDA_D State state(C z) {
    if constexpr (wide) return {z, C(0.0)};
    else return z;
  }
  static BARACUDA_D State leaf(complex<R> x) {
    const double nan = numeric<double>::nan();
    return state(math::isfinite(x) ? cast<C>(x) : C(nan, nan));
  }
  // x y - z w as a number and what it lacks.
  static BARACUDA_D C difference(double x, double y, double z, double w) {
    const double p = x * y, q = z * w, hi = p - q, part = hi - p;
    const double rest = (p - (hi - part)) - (q + part);
    return {hi, rest + (math::fma(x, y, -p) - math::fma(z, w, -q))};
  }
  static BARACUDA_D State merge(State a, State b) {
    if constexpr (wide) {
      const C re = difference(a.hi.re, b.hi.re, a.hi.im, b.hi.im), im = difference(a.hi.re, b.hi.im, -a.hi.im, b.hi.re);
      const C cross = math::plain_product(a.hi, b.lo) + math::plain_product(a.lo, b.hi);
      return {{re.re, im.re}, C(re.im, im.im) + cross};
    } else {
      return a * b;
    }
  }
  static BARACUDA_D Result finish(State s, const Reduced&) {
    if constexpr (wide) return math::isfinite(s.lo) ? s.hi + s.lo : s.hi;  // beyond an infinity lo is NaN
    else return cast<Result>(s);
  }
};

template <class T> struct Nanprod : Prod<T> {
  using Lane = Fold<Nanprod>;
  static BARACUDA_D Product leaf(acc_t<T> x) { return Product::of(math::isnan(x) ? acc_t<T>(1) : x); }
};

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
