#pragma once
// prod       products, of integers modulo 2^64: functors of baracuda/reduce_axes.cuh, over elements T.
#include <baracuda/complex.cuh>
#include "reduce/products.cuh"
#include "reduce/sums.cuh"

namespace baracuda::kinds {

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

}  // namespace baracuda::kinds
