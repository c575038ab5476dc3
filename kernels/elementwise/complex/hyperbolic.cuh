#pragma once
// hyperbolic   sinh, cosh and tanh, and their circular twins, which are the former turned by i.
#include "elementwise/complex/exponential.cuh"

namespace baracuda::math {

// Beyond it exp(-2 x) is nothing beside 1.
template <class R> constexpr R tanh_end = is_same<R, float> ? R(12) : R(22);

// sinh z = sinh x cos y + i cosh x sin y, cosh z = cosh x cos y + i sinh x sin y.
template <class R> BARACUDA_D complex<R> sinh(complex<R> z) {
  const R x = z.re, y = z.im;
  if (y == R(0)) return {sinh(x), y};
  if (!isfinite(y)) return {x == R(0) || isinf(x) ? x : numeric<R>::nan(), numeric<R>::nan()};
  const complex<R> turn = cis(y);
  if (abs(x) > exp_end<R>) return times_exp(abs(x), {x < R(0) ? -turn.re : turn.re, turn.im}, R(0.5));
  return {sinh(x) * turn.re, cosh(x) * turn.im};
}
template <class R> BARACUDA_D complex<R> cosh(complex<R> z) {
  const R x = z.re, y = z.im;
  if (y == R(0)) return {cosh(x), copysign(y, x) * copysign(R(1), y)};
  if (!isfinite(y)) return {isinf(x) ? abs(x) : numeric<R>::nan(), x == R(0) ? R(0) : numeric<R>::nan()};
  const complex<R> turn = cis(y);
  if (abs(x) > exp_end<R>) return times_exp(abs(x), {turn.re, x < R(0) ? -turn.im : turn.im}, R(0.5));
  return {cosh(x) * turn.re, sinh(x) * turn.im};
}
// (sinh x cosh x + i sin y cos y) / (sinh² x + cos² y): nothing cancels, also beside the poles.
template <class R> BARACUDA_D complex<R> tanh(complex<R> z) {
  const R x = z.re, y = z.im;
  if (y == R(0)) return {tanh(x), y};
  if (isinf(x)) return {copysign(R(1), x), isfinite(y) ? copysign(R(0), sin(R(2) * y)) : R(0)};
  if (!isfinite(y)) return {x == R(0) ? x : numeric<R>::nan(), numeric<R>::nan()};
  const complex<R> turn = cis(y);
  if (abs(x) > tanh_end<R>) return {copysign(R(1), x), R(4) * turn.re * turn.im * exp(R(-2) * abs(x))};
  const R s = sinh(x), square = s * s + turn.re * turn.re;
  return {s * sqrt(fma(s, s, R(1))) / square, turn.im * turn.re / square};
}
template <class R> BARACUDA_D complex<R> sin(complex<R> z) { return over_i(sinh(times_i(z))); }
template <class R> BARACUDA_D complex<R> cos(complex<R> z) { return cosh(times_i(z)); }
template <class R> BARACUDA_D complex<R> tan(complex<R> z) { return over_i(tanh(times_i(z))); }

}  // namespace baracuda::math

namespace baracuda {
namespace of_complex {

BARACUDA_COMPLEX(Sin, math::sin(z))
BARACUDA_COMPLEX(Cos, math::cos(z))
BARACUDA_COMPLEX(Tan, math::tan(z))
BARACUDA_COMPLEX(Sinh, math::sinh(z))
BARACUDA_COMPLEX(Cosh, math::cosh(z))
BARACUDA_COMPLEX(Tanh, math::tanh(z))

}  // namespace of_complex

namespace gradient {

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

namespace of_complex {

BARACUDA_SLOPE(Sin, cosh(math::times_i(z)))
BARACUDA_SLOPE(Cos, negative(sin(z)))
BARACUDA_SLOPE(Tan, cosh_squared(math::times_i(z)))
BARACUDA_SLOPE(Sinh, cosh(z))
BARACUDA_SLOPE(Cosh, sinh(z))
BARACUDA_SLOPE(Tanh, cosh_squared(z))

}  // namespace of_complex
}  // namespace gradient
}  // namespace baracuda
