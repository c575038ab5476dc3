#pragma once
// magnitude   |z|, the angle of z, and z / |z|.
#include "elementwise/complex_gradients.cuh"

namespace baracuda::math {

// z / |z|, 0 of 0. Of an infinity it is the direction of the infinite part, and NaN where both parts are infinite.
template <class R> BARACUDA_D complex<R> sgn(complex<R> z) {
  if (z.re == R(0) && z.im == R(0)) return z;
  if (isinf(z)) {
    if (isinf(z.re) && isinf(z.im)) return {numeric<R>::nan(), numeric<R>::nan()};
    return isinf(z.re) ? complex<R>(copysign(R(1), z.re)) : complex<R>(R(0), copysign(R(1), z.im));
  }
  const complex<R> s = scaled(z, -exponent(larger_part(z)));
  const R size = abs(s);
  return {s.re / size, s.im / size};
}

}  // namespace baracuda::math

namespace baracuda {
namespace of_complex {

BARACUDA_COMPLEX(Sgn, math::sgn(z))
BARACUDA_COMPLEX(Abs, math::abs(z))
BARACUDA_COMPLEX(Angle, math::angle(z))

}  // namespace of_complex

namespace gradient {

namespace of_complex {

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

}  // namespace of_complex
}  // namespace gradient
}  // namespace baracuda
