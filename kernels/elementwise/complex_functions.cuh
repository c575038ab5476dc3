#pragma once
// complex_functions   elementary functions of complex<float> and complex<double>.
//
// Special values are those of C99 Annex G, as in NumPy. Where a real function would overflow or vanish although the result
// does neither, its argument is split. sin, tan, asinh and atan are their hyperbolic or circular twins turned by i, so
// that each branch cut is written once.
#include <baracuda/complex.cuh>

namespace baracuda::math {

template <class R> constexpr R ln2 = R(0.693147180559945309417232121458);
template <class R> constexpr R inverse_ln2 = R(1.44269504088896340735992468100);
template <class R> constexpr R inverse_ln10 = R(0.434294481903251827651128918917);
template <class R> constexpr R half_pi = R(1.57079632679489661923132169164);
// Beyond it exp(x) leaves the normal numbers.
template <class R> constexpr R exp_end = is_same<R, float> ? R(87) : R(708);
// Beyond it exp(-2 x) is nothing beside 1.
template <class R> constexpr R tanh_end = is_same<R, float> ? R(12) : R(22);

// The sign of NaN says nothing, and counts as positive.
template <class R> BARACUDA_D R with_sign(R x, R sign) { return isnan(sign) ? x : copysign(x, sign); }

// ---- magnitude and angle --------------------------------------------------------------------------------------------

template <class R> BARACUDA_D R abs(complex<R> z) { return hypot(z.re, z.im); }
template <class R> BARACUDA_D R angle(complex<R> z) { return atan2(z.im, z.re); }

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

// log |z|. Near the unit circle from |z|² - 1, whose squares keep their rounding errors; the ends of the range scaled.
template <class R> BARACUDA_D R log_abs(complex<R> z) {
  const R m = larger_part(z), n = abs(z.re) > abs(z.im) ? abs(z.im) : abs(z.re);
  if (m > R(0.5) && m < R(1.5) && n < R(1.5)) {
    const R mm = m * m, nn = n * n, low = fma(m, m, -mm) + fma(n, n, -nn);
    const R most = mm - R(1);  // exact in [1/2, 2]
    const R sum = most + nn, big = abs(most) > nn ? most : nn, rest = abs(most) > nn ? nn : most;
    const R t = sum + ((rest - (sum - big)) + low);
    if (t > R(-0.5)) return R(0.5) * log1p(t);
  }
  const int e = exponent(m), end = max_exponent<R> - 30;
  if ((e > end || e < -end) && isfinite(z)) {
    return log(abs(scaled(z, -e))) + static_cast<R>(e) * ln2<R>;
  }
  return log(abs(z));
}
template <class R> BARACUDA_D complex<R> log(complex<R> z) { return {log_abs(z), angle(z)}; }

template <class R> BARACUDA_D complex<R> log1p(complex<R> z) {
  const R x = z.re, y = z.im, t = x * (R(2) + x) + y * y;  // |1 + z|² - 1
  const bool near = abs(x) < R(3) && abs(y) < R(3) && t > R(-0.5);
  const complex<R> moved = {R(1) + x, y};
  return {near ? R(0.5) * log1p(t) : log_abs(moved), angle(moved)};
}

// ---- sqrt -----------------------------------------------------------------------------------------------------------

// √((|z| ± x) / 2), the smaller root from the larger one; z is scaled by an even power of two.
template <class R> BARACUDA_D complex<R> sqrt(complex<R> z) {
  const R x = z.re, y = z.im;
  if (x == R(0) && y == R(0)) return {R(0), y};
  if (isinf(y)) return {numeric<R>::infinity(), y};
  if (isinf(x)) {
    const R other = y - y;  // NaN of NaN
    return x > R(0) ? complex<R>(x, copysign(other, y)) : complex<R>(abs(other), with_sign(-x, y));
  }
  const int half = exponent(larger_part(z)) / 2;
  const complex<R> s = scaled(z, -2 * half);
  const R root = sqrt(R(0.5) * (abs(s.re) + abs(s)));
  const R large = scaled(root, half), small = scaled(abs(y), -half) / (R(2) * root);
  return x >= R(0) ? complex<R>(large, copysign(small, y)) : complex<R>(small, copysign(large, y));
}

// ---- exp and what is made of it -------------------------------------------------------------------------------------

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

// The numerator and denominator of sigmoid: 1 and 1 + e^-z, or e^z and 1 + e^z, whichever exponential is below 1. The
// denominator is 1 - e^-|x| + 2 e^-|x| cos²(y / 2) + …i, in which nothing cancels beside the poles.
template <class R> struct Sigmoid {
  complex<R> above, below, decay;  // decay: e^∓z
};
template <class R> BARACUDA_D Sigmoid<R> sigmoid_parts(complex<R> z) {
  const R size = exp(-abs(z.re));
  const complex<R> half = cis(R(0.5) * z.im);
  const R sine = R(2) * half.re * half.im, cosine = R(1) - R(2) * half.im * half.im;
  const bool right = z.re >= R(0);
  const complex<R> decay = {size * cosine, right ? -(size * sine) : size * sine};
  const R re = R(2) * size * half.re * half.re - expm1(-abs(z.re));
  return {right ? complex<R>(R(1)) : decay, {re, decay.im}, decay};
}
template <class R> BARACUDA_D complex<R> sigmoid(complex<R> z) {
  if (isinf(z.re)) return {z.re > R(0) ? R(1) : R(0), R(0)};
  const Sigmoid<R> parts = sigmoid_parts(z);
  return parts.above / parts.below;
}

// ---- inverse functions ----------------------------------------------------------------------------------------------
//
// Kahan, Branch Cuts for Complex Elementary Functions, 1987: with √(1 - z) and √(1 + z) nothing cancels anywhere. Far out
// the functions are logarithms of 2z.

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

// ---- pow ------------------------------------------------------------------------------------------------------------

// e^(w log z), 0^w being 1 for w = 0, 0 for Re w > 0, else NaN, as in NumPy.
template <class R> BARACUDA_D complex<R> pow(complex<R> z, complex<R> w) {
  if (w.re == R(0) && w.im == R(0)) return {R(1), R(0)};
  if (z.re == R(0) && z.im == R(0))
    return w.re > R(0) ? complex<R>(R(0)) : complex<R>(numeric<R>::nan(), numeric<R>::nan());
  return exp(w * log(z));
}

}  // namespace baracuda::math
