#pragma once
// complex    arithmetic of complex<float> and complex<double> (types.cuh), and functions of one complex number.
//
// Products, quotients and roots of finite numbers are finite wherever the result is: where the plain formula leaves the
// range of the type it is repeated with operands scaled by powers of two, which is exact. Infinities and NaN go through
// the plain formulas, as in NumPy and PyTorch. Errors are relative to |result|, not to each of its parts.
#include <baracuda/math.cuh>

namespace baracuda {

template <class R> BARACUDA_D complex<R> operator-(complex<R> z) { return {-z.re, -z.im}; }
template <class R> BARACUDA_D complex<R> operator+(complex<R> z, complex<R> w) { return {z.re + w.re, z.im + w.im}; }
template <class R> BARACUDA_D complex<R> operator-(complex<R> z, complex<R> w) { return {z.re - w.re, z.im - w.im}; }
template <class R> BARACUDA_D complex<R> operator*(complex<R> z, R by) { return {z.re * by, z.im * by}; }

namespace math {

// ---- scaling --------------------------------------------------------------------------------------------------------

// Fields of the format: the largest and smallest exponent of a normal number, and the bits of its fraction.
template <class R> constexpr int fraction_bits = is_same<R, float> ? 23 : 52;
template <class R> constexpr int max_exponent = is_same<R, float> ? 127 : 1023;

// floor(log2 |x|), that of the smallest normal number for subnormals and 0, of infinity for NaN.
BARACUDA_D int exponent(float x) { return max<int>(__float_as_int(x) >> 23 & 255, 1) - 127; }
BARACUDA_D int exponent(double x) { return max<int>(static_cast<int>(__double_as_longlong(x) >> 52 & 2047), 1) - 1023; }

// 2^e for -max_exponent < e <= max_exponent.
template <class R> BARACUDA_D R power_of_two(int e) {
  if constexpr (is_same<R, float>) return __int_as_float((e + 127) << 23);
  else return __longlong_as_double(static_cast<i64>(e + 1023) << 52);
}

// x 2^e for |e| <= 4 max_exponent.
template <class R> BARACUDA_D R scaled(R x, int e) { return ldexp(x, e); }
template <class R> BARACUDA_D complex<R> scaled(complex<R> z, int e) { return {scaled(z.re, e), scaled(z.im, e)}; }

// The plain `<`: the larger magnitude of the two parts; NaN only where the imaginary part is NaN.
template <class R> BARACUDA_D R larger_part(complex<R> z) { return abs(z.re) > abs(z.im) ? abs(z.re) : abs(z.im); }

template <class R> BARACUDA_D bool isnan(complex<R> z) { return isnan(z.re) || isnan(z.im); }
template <class R> BARACUDA_D bool isinf(complex<R> z) { return isinf(z.re) || isinf(z.im); }
template <class R> BARACUDA_D bool isfinite(complex<R> z) { return isfinite(z.re) && isfinite(z.im); }

// ---- arithmetic -----------------------------------------------------------------------------------------------------

template <class R> BARACUDA_D complex<R> conj(complex<R> z) { return {z.re, -z.im}; }
template <class R> BARACUDA_D complex<R> times_i(complex<R> z) { return {-z.im, z.re}; }
template <class R> BARACUDA_D complex<R> over_i(complex<R> z) { return {z.im, -z.re}; }

template <class R> BARACUDA_D complex<R> plain_product(complex<R> z, complex<R> w) {
  return {z.re * w.re - z.im * w.im, z.re * w.im + z.im * w.re};
}
// A number beside an infinity counts by its sign alone: its product with the other number must not overflow.
template <class R> BARACUDA_D complex<R> beside_infinity(complex<R> z) {
  const auto one = [](R x) { return isfinite(x) && x != R(0) ? copysign(R(1), x) : x; };
  return {one(z.re), one(z.im)};
}
// Not finite at the first attempt: rare, so that no warp of ordinary numbers comes here.
template <class R> BARACUDA_D complex<R> product_beyond(complex<R> z, complex<R> w) {
  if (isinf(z) || isinf(w)) return plain_product(beside_infinity(z), beside_infinity(w));
  const int a = exponent(larger_part(z)), b = exponent(larger_part(w));
  const complex<R> near = plain_product(z, w), far = scaled(plain_product(scaled(z, -a), scaled(w, -b)), a + b);
  return {isfinite(near.re) ? near.re : far.re, isfinite(near.im) ? near.im : far.im};
}
template <class R> BARACUDA_D complex<R> times(complex<R> z, complex<R> w) {
  const complex<R> y = plain_product(z, w);
  return isfinite(y) || isnan(z) || isnan(w) ? y : product_beyond(z, w);
}

// z / w with both divided by a power of two near their size. By a zero: parts of z over +0, as NumPy and PyTorch do.
template <class R> BARACUDA_D complex<R> over(complex<R> z, complex<R> w) {
  if (w.re == R(0) && w.im == R(0)) return {z.re / abs(w.re), z.im / abs(w.re)};
  if (isinf(w)) {  // the quotient of a number is zero, that of an infinity NaN, as is one by two infinite parts
    const bool zero = isfinite(z) && !isnan(w) && !(isinf(w.re) && isinf(w.im));
    return zero ? complex<R>(R(0), R(0)) : complex<R>(numeric<R>::nan(), numeric<R>::nan());
  }
  if (isinf(z)) return plain_product(beside_infinity(z), conj(beside_infinity(w)));
  const int a = exponent(larger_part(z)), b = exponent(larger_part(w));
  const complex<R> d = scaled(w, -b), y = plain_product(scaled(z, -a), conj(d));
  const R square = d.re * d.re + d.im * d.im;  // in [1, 8), less only where w is subnormal
  return scaled(complex<R>{y.re / square, y.im / square}, a - b);
}

}  // namespace math

template <class R> BARACUDA_D complex<R> operator*(complex<R> z, complex<R> w) { return math::times(z, w); }
template <class R> BARACUDA_D complex<R> operator/(complex<R> z, complex<R> w) { return math::over(z, w); }

}  // namespace baracuda
