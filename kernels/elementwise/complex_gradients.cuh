#pragma once
// complex_gradients   gradients of the complex kinds by PyTorch's convention: dy times the conjugate of f'(z).
//
// dy and the slope have any exponent: both are scaled to about 1 and the product once, at the end, so that nothing on
// the way overflows or loses digits.
#include "elementwise/complex_functions.cuh"
#include "elementwise/faddeeva.cuh"

namespace baracuda::gradient {

// f' = m 2^e, or the inverse of that where it is the simpler number.
template <class R> struct Slope {
  complex<R> m;
  int e = 0;
  bool inverse = false;
};

template <class R> BARACUDA_D int exponent_of(complex<R> z) {
  return math::isfinite(z) ? math::exponent(math::larger_part(z)) : 0;
}
// dy conj(f'), NaN where dy is no number.
template <class R> BARACUDA_D complex<R> apply(complex<R> dy, Slope<R> slope) {
  if (!math::isfinite(dy)) return {numeric<R>::nan(), numeric<R>::nan()};
  if (slope.inverse && slope.m == complex<R>(R(0))) return dy / slope.m;
  const int a = exponent_of(dy), b = exponent_of(slope.m);
  const complex<R> d = math::scaled(dy, -a), m = math::conj(math::scaled(slope.m, -b));
  return slope.inverse ? math::scaled(d / m, a - b - slope.e) : math::scaled(d * m, a + b + slope.e);
}

template <class R> BARACUDA_D Slope<R> over(complex<R> m, int e = 0) { return {m, e, true}; }
template <class R> BARACUDA_D Slope<R> negative(Slope<R> slope) { return {-slope.m, slope.e, slope.inverse}; }

// exp(x) z = m 2^e for any x.
template <class R> BARACUDA_D Slope<R> far(R x, complex<R> z) {
  const R end = math::exp_end<R>, near = x > end ? end : x < -end ? -end : x;
  const R beyond = x - near, rest = beyond > R(2) * end ? R(2) * end : beyond < R(-2) * end ? R(-2) * end : beyond;
  const R first = math::exp(near), h = math::exp(R(0.5) * rest);
  const int a = math::exponent(first), b = math::exponent(h);
  const R part = math::scaled(h, -b);
  return {z * math::scaled(first, -a) * part * part, a + 2 * b};
}

template <class R> BARACUDA_D Slope<R> exp(complex<R> z) { return far(z.re, math::cis(z.im)); }
template <class R> BARACUDA_D Slope<R> sinh(complex<R> z) {
  if (!(math::abs(z.re) > math::tanh_end<R>)) return {math::sinh(z)};
  const complex<R> turn = math::cis(z.im) * R(0.5);
  return far(math::abs(z.re), complex<R>(math::copysign(turn.re, turn.re * z.re), turn.im));
}
template <class R> BARACUDA_D Slope<R> cosh(complex<R> z) {
  if (!(math::abs(z.re) > math::tanh_end<R>)) return {math::cosh(z)};
  const complex<R> turn = math::cis(z.im) * R(0.5);
  return far(math::abs(z.re), complex<R>(turn.re, math::copysign(turn.im, turn.im * z.re)));
}
template <class R> BARACUDA_D Slope<R> cosh_squared(complex<R> z) {
  const Slope<R> c = cosh(z);
  return over(c.m * c.m, 2 * c.e);
}
template <class R> BARACUDA_D Slope<R> sin(complex<R> z) {
  const Slope<R> s = sinh(math::times_i(z));
  return {math::over_i(s.m), s.e};
}
// 1 - z² = (1 - z)(1 + z), far out -z².
template <class R> BARACUDA_D Slope<R> one_less_square(complex<R> z) {
  const int large = exponent_of(z) - 4, e = large > 0 ? large : 0;
  const complex<R> s = math::scaled(z, -e);
  const R one = math::scaled(R(1), -e);
  return over(complex<R>(one - s.re, -s.im) * complex<R>(one + s.re, s.im), 2 * e);
}
// 1 / (√(1 - z) √(1 + z)); far out z is scaled by an even power of two, as the product may overflow.
template <class R> BARACUDA_D Slope<R> over_roots(complex<R> z) {
  const int large = exponent_of(z) - 4, e = large > 0 ? large & ~1 : 0;
  const complex<R> s = math::scaled(z, -e);
  const R one = math::scaled(R(1), -e);
  return over(math::sqrt(complex<R>(one - s.re, -s.im)) * math::sqrt(complex<R>(one + s.re, s.im)), e);
}
// 1 / (√(z - 1) √(z + 1)).
template <class R> BARACUDA_D Slope<R> over_acosh_roots(complex<R> z) {
  const int large = exponent_of(z) - 4, e = large > 0 ? large & ~1 : 0;
  const complex<R> s = math::scaled(z, -e);
  const R one = math::scaled(R(1), -e);
  return over(math::sqrt(complex<R>(s.re - one, s.im)) * math::sqrt(complex<R>(s.re + one, s.im)), e);
}
template <class R> BARACUDA_D Slope<R> reciprocal(complex<R> z) {
  const int e = exponent_of(z);
  const complex<R> s = math::scaled(z, -e);
  return over(-(s * s), 2 * e);
}
// 1 / (z log b): z is made normal first, so that the product keeps its digits.
template <class R> BARACUDA_D Slope<R> log_in(complex<R> z, R log_of_base) {
  const int e = exponent_of(z);
  return over(math::isfinite(z) ? math::scaled(z, -e) * log_of_base : z, e);
}
// e^-z / (1 + e^-z)², the same with e^z.
template <class R> BARACUDA_D Slope<R> sigmoid(complex<R> z) {
  const complex<R> below = math::sigmoid_parts(z).below, turn = math::cis(z.re >= R(0) ? -z.im : z.im);
  const Slope<R> decay = far(-math::abs(z.re), turn);
  return {decay.m / below / below, decay.e};
}
// w'(z), in double.
template <class R> BARACUDA_D Slope<R> wofz(complex<R> z) {
  const auto [m, e] = faddeeva::slope(complex<double>{z.re, z.im});
  const int k = exponent_of(m);
  const complex<double> part = math::scaled(m, -k);
  return {{static_cast<R>(part.re), static_cast<R>(part.im)}, e + k};
}

namespace of_complex {

// Of holomorphic functions.
#define BARACUDA_SLOPE(Name, formula)                                                                 \
  template <class R> struct Name {                                                                    \
    using Cotangent = complex<R>;                                                                     \
    static BARACUDA_D complex<R> value(complex<R> dy, complex<R> z) { return apply<R>(dy, formula); } \
  };
// clang-format off
BARACUDA_SLOPE(Reciprocal, reciprocal(z))
BARACUDA_SLOPE(Square, (Slope<R>{z, 1}))
BARACUDA_SLOPE(Sqrt, over(math::sqrt(z), 1))
BARACUDA_SLOPE(Exp, exp(z))
BARACUDA_SLOPE(Expm1, exp(z))
BARACUDA_SLOPE(Log, over(z))
BARACUDA_SLOPE(Log2, log_in(z, math::ln2<R>))
BARACUDA_SLOPE(Log10, log_in(z, R(2.30258509299404568401799145468)))
BARACUDA_SLOPE(Log1p, over(complex<R>(R(1) + z.re, z.im)))
BARACUDA_SLOPE(Sin, cosh(math::times_i(z)))
BARACUDA_SLOPE(Cos, negative(sin(z)))
BARACUDA_SLOPE(Tan, cosh_squared(math::times_i(z)))
BARACUDA_SLOPE(Asin, over_roots(z))
BARACUDA_SLOPE(Acos, negative(over_roots(z)))
BARACUDA_SLOPE(Atan, one_less_square(math::times_i(z)))
BARACUDA_SLOPE(Sinh, cosh(z))
BARACUDA_SLOPE(Cosh, sinh(z))
BARACUDA_SLOPE(Tanh, cosh_squared(z))
BARACUDA_SLOPE(Asinh, over_roots(math::times_i(z)))
BARACUDA_SLOPE(Acosh, over_acosh_roots(z))
BARACUDA_SLOPE(Atanh, one_less_square(z))
BARACUDA_SLOPE(Sigmoid, sigmoid(z))
BARACUDA_SLOPE(Wofz, wofz(z))
// clang-format on
#undef BARACUDA_SLOPE

template <class R> struct Neg {
  using Cotangent = complex<R>;
  static BARACUDA_D complex<R> value(complex<R> dy, complex<R>) { return -dy; }
};
template <class R> struct Conj {
  using Cotangent = complex<R>;
  static BARACUDA_D complex<R> value(complex<R> dy, complex<R>) { return math::conj(dy); }
};

// i z factor / |z|², 0 at 0.
template <class R> BARACUDA_D complex<R> across(complex<R> z, R factor) {
  const int a = exponent_of(complex<R>(factor)), e = exponent_of(z);
  const R size = math::abs(math::scaled(z, -e)), d = math::scaled(factor, -a) / (size == R(0) ? R(1) : size);
  return math::scaled(math::times_i(math::sgn(z)) * d, a - e);
}
// u v' - u' v with one rounding of what remains, as m 2^e: Kahan's difference of products, of factors scaled to about 1.
template <class R> struct Scaled {
  R m;
  int e;
};
template <class R> BARACUDA_D Scaled<R> cross(complex<R> u, complex<R> v) {
  const int a = math::exponent(u.re), b = math::exponent(v.im), c = math::exponent(u.im), d = math::exponent(v.re);
  constexpr int nothing = -8 * math::max_exponent<R>;  // the exponent of a product that is 0
  const int first = u.re == R(0) || v.im == R(0) ? nothing : a + b;
  const int second = u.im == R(0) || v.re == R(0) ? nothing : c + d;
  const int e = max<int>(first, second);
  const R x = math::scaled(u.re, -a), y = math::scaled(math::scaled(v.im, -b), first - e);
  const R z = math::scaled(u.im, -c), w = math::scaled(math::scaled(v.re, -d), second - e);
  const R product = z * w;
  return {math::fma(x, y, -product) + math::fma(-z, w, product), e};
}
// (dy - Re(dy conj(s)) s) / |z| = i s (x Im dy - y Re dy) / |z|², s = sgn z.
template <class R> struct Sgn {
  using Cotangent = complex<R>;
  static BARACUDA_D complex<R> value(complex<R> dy, complex<R> z) {
    if (!math::isfinite(dy)) return {numeric<R>::nan(), numeric<R>::nan()};
    const Scaled<R> aside = cross(z, dy);
    const int e = exponent_of(z);
    const complex<R> s = math::scaled(z, -e);
    const R square = s.re * s.re + s.im * s.im;
    const R size = square == R(0) ? R(1) : square;
    return math::scaled(math::times_i(math::sgn(z)) * (aside.m / size), aside.e - 2 * e);
  }
};

// Of real functions: dy is real.
template <class R> struct Abs {
  using Cotangent = R;
  static BARACUDA_D complex<R> value(R dy, complex<R> z) { return math::sgn(z) * dy; }
};
template <class R> struct Angle {
  using Cotangent = R;
  static BARACUDA_D complex<R> value(R dy, complex<R> z) { return across(z, dy); }
};
template <class R> struct Real {
  using Cotangent = R;
  static BARACUDA_D complex<R> value(R dy, complex<R>) { return {dy, R(0)}; }
};
template <class R> struct Imag {
  using Cotangent = R;
  static BARACUDA_D complex<R> value(R dy, complex<R>) { return {R(0), dy}; }
};

}  // namespace of_complex
}  // namespace baracuda::gradient
