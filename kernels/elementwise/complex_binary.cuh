#pragma once
// complex_binary   functors of two complex numbers: value(a, b), and the gradients da(dy, a, b) and db(dy, a, b), dy times the
// conjugate of the derivative.
#include "elementwise/complex_functions.cuh"

namespace baracuda::of_complex {

template <class R> struct Add {
  using C = complex<R>;
  static BARACUDA_D C value(C a, C b) { return a + b; }
  static BARACUDA_D C da(C dy, C, C) { return dy; }
  static BARACUDA_D C db(C dy, C, C) { return dy; }
};
template <class R> struct Sub {
  using C = complex<R>;
  static BARACUDA_D C value(C a, C b) { return a - b; }
  static BARACUDA_D C da(C dy, C, C) { return dy; }
  static BARACUDA_D C db(C dy, C, C) { return -dy; }
};
template <class R> struct Mul {
  using C = complex<R>;
  static BARACUDA_D C value(C a, C b) { return a * b; }
  static BARACUDA_D C da(C dy, C, C b) { return dy * math::conj(b); }
  static BARACUDA_D C db(C dy, C a, C) { return dy * math::conj(a); }
};
template <class R> struct Div {
  using C = complex<R>;
  static BARACUDA_D C value(C a, C b) { return a / b; }
  static BARACUDA_D C da(C dy, C, C b) { return dy / math::conj(b); }
  static BARACUDA_D C db(C dy, C a, C b) { return -(dy * math::conj(a / b) / math::conj(b)); }
};
// ∂/∂a is 0 where b is 0; ∂/∂b is 0 where a is 0 and Re b not negative.
template <class R> struct Pow {
  using C = complex<R>;
  static BARACUDA_D C value(C a, C b) { return math::pow(a, b); }
  static BARACUDA_D C da(C dy, C a, C b) {
    if (b == C(R(0))) return C(R(0));
    const C slope = math::conj(b * math::pow(a, C(b.re - R(1), b.im)));
    if (math::isfinite(slope) || !math::isfinite(dy) || !math::isfinite(b)) return dy * slope;
    const C root = math::pow(a, C((b.re - R(1)) / R(2), b.im / R(2)));  // of the power, which left the range
    return dy * math::conj(b * root) * math::conj(root);
  }
  static BARACUDA_D C db(C dy, C a, C b) {
    if (a == C(R(0)) && b.re >= R(0)) return C(R(0));
    return dy * math::conj(math::pow(a, b) * math::log(a));
  }
};
template <class R> struct Eq {
  static BARACUDA_D bool value(complex<R> a, complex<R> b) { return a == b; }
};
template <class R> struct Ne {
  static BARACUDA_D bool value(complex<R> a, complex<R> b) { return a != b; }
};

// a = b, or |a - b| <= atol + |rtol b| where that is finite; in double. A magnitude of b itself may lie beyond the range.
template <class R> struct Isclose {
  static BARACUDA_D bool value(complex<R> a, complex<R> b, double rtol, double atol, bool equal_nan) {
    if (a == b) return true;
    if (math::isnan(a) && math::isnan(b)) return equal_nan;
    const double x = b.re, y = b.im, error = math::hypot(a.re - x, a.im - y);
    return math::isfinite(error) && error <= atol + math::hypot(rtol * x, rtol * y);
  }
};
template <class F, class R, class = void> constexpr bool has_tolerance = true;
template <class F, class R>
constexpr bool has_tolerance<F, R, decltype(static_cast<void>(F::value(complex<R>(R(0)), complex<R>(R(0)))))> = false;

}  // namespace baracuda::of_complex

namespace baracuda {

// The operands of f: what was read, or a number of the parameters in its place: 1 left, 2 right, 0 none.
template <class T> struct ComplexOperands {
  T number;
  int place;
  template <class P>
  BARACUDA_D ComplexOperands(const P& p, int place)
      : number(static_cast<part_t<T>>(p.number()), static_cast<part_t<T>>(p.imag())), place(place) {}
  BARACUDA_D T left(T a) const { return place == 1 ? number : a; }
  BARACUDA_D T right(T b) const { return place == 2 ? number : b; }
};

}  // namespace baracuda
