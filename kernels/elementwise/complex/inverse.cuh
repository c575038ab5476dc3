#pragma once
// inverse   the inverses of the hyperbolic and circular functions.
//
// Kahan, Branch Cuts for Complex Elementary Functions, 1987: with √(1 - z) and √(1 + z) nothing cancels anywhere. Far out
// the functions are logarithms of 2z. asinh and atan are asin and atanh turned by i, so that each branch cut is written
// once.
#include "elementwise/complex/logarithm.cuh"
#include "elementwise/complex/root.cuh"

namespace baracuda::math {

template <class R> constexpr R half_pi = R(1.57079632679489661923132169164);

// Where z² is all of 1 ± z² and the roots' product might overflow.
template <class R> BARACUDA_D bool is_far(complex<R> z) {
  return isinf(z) || (larger_part(z) > power_of_two<R>(fraction_bits<R> + 2) && !isnan(z));
}

template <class R> BARACUDA_D complex<R> asin(complex<R> z) {
  const R x = z.re, y = z.im;
  if (is_far(z)) return {atan2(x, abs(y)), with_sign(log_abs(z) + ln2<R>, y)};
  if (isnan(z)) return {x == R(0) ? x : x + y, x + y};
  const complex<R> below = sqrt(complex<R>(R(1) - x, -y)), above = sqrt(complex<R>(R(1) + x, y));
  return {atan2(x, below.re * above.re - below.im * above.im), asinh(below.re * above.im - below.im * above.re)};
}
template <class R> BARACUDA_D complex<R> acos(complex<R> z) {
  const R x = z.re, y = z.im;
  if (is_far(z)) return {atan2(abs(y), x), -with_sign(log_abs(z) + ln2<R>, y)};
  if (isnan(z)) return {x == R(0) ? half_pi<R> : x + y, x + y};
  const complex<R> below = sqrt(complex<R>(R(1) - x, -y)), above = sqrt(complex<R>(R(1) + x, y));
  return {R(2) * atan2(below.re, above.re), asinh(above.re * below.im - above.im * below.re)};
}
template <class R> BARACUDA_D complex<R> acosh(complex<R> z) {
  const R x = z.re, y = z.im;
  if (is_far(z)) return {log_abs(z) + ln2<R>, atan2(y, x)};
  if (isnan(z)) return {x + y, x == R(0) ? half_pi<R> : x + y};
  const complex<R> below = sqrt(complex<R>(x - R(1), y)), above = sqrt(complex<R>(x + R(1), y));
  return {asinh(below.re * above.re + below.im * above.im), R(2) * atan2(below.im, above.re)};
}
// Re = log1p(4x / ((1 - x)² + y²)) / 4, Im = atan2(2y, (1 - x)(1 + x) - y²) / 2, for |x|.
template <class R> BARACUDA_D complex<R> atanh(complex<R> z) {
  const R x = abs(z.re), y = z.im;
  if (is_far(z)) {
    const R re = isinf(z) ? R(0) : abs(over(complex<R>(R(1)), z).re);
    return {copysign(re, z.re), isnan(y) ? y : copysign(half_pi<R>, y)};
  }
  if (isnan(z)) return {x == R(0) ? z.re : x + y, x + y};
  const R gap = R(1) - x;
  R re = R(0.25) * log1p(R(4) * x / (gap * gap + y * y));
  if (gap == R(0) && abs(y) < R(1e-6)) re = R(0.5) * (ln2<R> - log(abs(y)));
  return {copysign(re, z.re), R(0.5) * atan2(R(2) * y, gap * (R(1) + x) - y * y)};
}
template <class R> BARACUDA_D complex<R> asinh(complex<R> z) { return over_i(asin(times_i(z))); }
template <class R> BARACUDA_D complex<R> atan(complex<R> z) { return over_i(atanh(times_i(z))); }

}  // namespace baracuda::math

namespace baracuda {
namespace of_complex {

BARACUDA_COMPLEX(Asin, math::asin(z))
BARACUDA_COMPLEX(Acos, math::acos(z))
BARACUDA_COMPLEX(Atan, math::atan(z))
BARACUDA_COMPLEX(Asinh, math::asinh(z))
BARACUDA_COMPLEX(Acosh, math::acosh(z))
BARACUDA_COMPLEX(Atanh, math::atanh(z))

}  // namespace of_complex

namespace gradient {

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

namespace of_complex {

BARACUDA_SLOPE(Asin, over_roots(z))
BARACUDA_SLOPE(Acos, negative(over_roots(z)))
BARACUDA_SLOPE(Atan, one_less_square(math::times_i(z)))
BARACUDA_SLOPE(Asinh, over_roots(math::times_i(z)))
BARACUDA_SLOPE(Acosh, over_acosh_roots(z))
BARACUDA_SLOPE(Atanh, one_less_square(z))

}  // namespace of_complex
}  // namespace gradient
}  // namespace baracuda
