#pragma once
// exponential   e^z and e^z - 1.
#include "elementwise/complex_gradients.cuh"

namespace baracuda::math {

// by e^x z for any x: in three factors where e^x alone overflows.
template <class R> BARACUDA_D complex<R> times_exp(R x, complex<R> z, R by = R(1)) {
  if (!(x > exp_end<R>)) return z * (by * exp(x));
  const R beyond = exp(R(0.5) * min(x - exp_end<R>, R(2) * exp_end<R>));
  return z * (by * exp(exp_end<R>)) * beyond * beyond;
}
template <class R> BARACUDA_D complex<R> cis(R y) {
  complex<R> z;
  sincos(y, &z.im, &z.re);
  return z;
}

template <class R> BARACUDA_D complex<R> exp(complex<R> z) {
  if (z.im == R(0)) return {exp(z.re), z.im};
  if (!isfinite(z.im)) {
    if (z.re == -numeric<R>::infinity()) return {R(0), copysign(R(0), z.im)};
    if (z.re == numeric<R>::infinity()) return {z.re, numeric<R>::nan()};
  }
  return times_exp(z.re, cis(z.im));
}

// e^x cos y - 1 = expm1(x) - 2 e^x sin²(y / 2).
template <class R> BARACUDA_D complex<R> expm1(complex<R> z) {
  if (z.im == R(0)) return {expm1(z.re), z.im};
  if (z.re == -numeric<R>::infinity()) return {R(-1), copysign(R(0), z.im)};
  if (z.re > R(40)) return exp(z);
  const complex<R> half = cis(R(0.5) * z.im);
  const R size = R(2) * exp(z.re);
  return {expm1(z.re) - size * half.im * half.im, size * half.im * half.re};
}

}  // namespace baracuda::math

namespace baracuda {
namespace of_complex {

BARACUDA_COMPLEX(Exp, math::exp(z))
BARACUDA_COMPLEX(Expm1, math::expm1(z))

}  // namespace of_complex

namespace gradient {

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

namespace of_complex {

BARACUDA_SLOPE(Exp, exp(z))
BARACUDA_SLOPE(Expm1, exp(z))

}  // namespace of_complex
}  // namespace gradient
}  // namespace baracuda
