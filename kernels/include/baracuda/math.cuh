#pragma once
// math       functions of float and double that templates call by one name, and the activations built on them.
//
// The CUDA library functions under their names: no fast-math variant unless the name says fast_. f32 error bounds in
// ulp (CUDA Programming Guide, Mathematical Functions): exp 1, exp2 2, log 1, log1p 1, expm1 1, tanh 2, erf 2, erfc 4,
// sin and cos 2, pow 4, rsqrt 2; sqrt and division are correctly rounded. 16-bit floats compute in float (acc_t).
#include <baracuda/types.cuh>

namespace baracuda::math {

// ---- library functions ----------------------------------------------------------------------------------------------

#define BARACUDA_MATH_1(name)                             \
  BARACUDA_D float name(float x) { return ::name##f(x); } \
  BARACUDA_D double name(double x) { return ::name(x); }
#define BARACUDA_MATH_2(name)                                         \
  BARACUDA_D float name(float x, float y) { return ::name##f(x, y); } \
  BARACUDA_D double name(double x, double y) { return ::name(x, y); }

// clang-format off
BARACUDA_MATH_1(exp) BARACUDA_MATH_1(exp2) BARACUDA_MATH_1(exp10) BARACUDA_MATH_1(expm1)
BARACUDA_MATH_1(log) BARACUDA_MATH_1(log2) BARACUDA_MATH_1(log10) BARACUDA_MATH_1(log1p)
BARACUDA_MATH_1(sqrt) BARACUDA_MATH_1(rsqrt) BARACUDA_MATH_1(cbrt)
BARACUDA_MATH_1(sin) BARACUDA_MATH_1(cos) BARACUDA_MATH_1(tan) BARACUDA_MATH_1(asin) BARACUDA_MATH_1(acos)
BARACUDA_MATH_1(atan) BARACUDA_MATH_1(sinh) BARACUDA_MATH_1(cosh) BARACUDA_MATH_1(tanh) BARACUDA_MATH_1(asinh)
BARACUDA_MATH_1(acosh) BARACUDA_MATH_1(atanh) BARACUDA_MATH_1(sinpi) BARACUDA_MATH_1(cospi)
BARACUDA_MATH_1(erf) BARACUDA_MATH_1(erfc) BARACUDA_MATH_1(erfcx) BARACUDA_MATH_1(erfinv) BARACUDA_MATH_1(erfcinv)
BARACUDA_MATH_1(normcdf) BARACUDA_MATH_1(normcdfinv) BARACUDA_MATH_1(lgamma) BARACUDA_MATH_1(tgamma)
BARACUDA_MATH_1(j0) BARACUDA_MATH_1(j1) BARACUDA_MATH_1(y0) BARACUDA_MATH_1(y1)
BARACUDA_MATH_1(floor) BARACUDA_MATH_1(ceil) BARACUDA_MATH_1(trunc)
BARACUDA_MATH_1(rint)   // to nearest, halves to even
BARACUDA_MATH_1(round)  // halves away from zero
BARACUDA_MATH_2(pow) BARACUDA_MATH_2(atan2) BARACUDA_MATH_2(hypot) BARACUDA_MATH_2(copysign) BARACUDA_MATH_2(nextafter)
BARACUDA_MATH_2(fmod)  // sign of x, exact

#undef BARACUDA_MATH_1
#undef BARACUDA_MATH_2

BARACUDA_D float fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }
BARACUDA_D double fma(double a, double b, double c) { return __fma_rn(a, b, c); }
// clang-format on
BARACUDA_D float abs(float x) { return ::fabsf(x); }
BARACUDA_D double abs(double x) { return ::fabs(x); }
BARACUDA_D void sincos(float x, float* s, float* c) { ::sincosf(x, s, c); }
BARACUDA_D void sincos(double x, double* s, double* c) { ::sincos(x, s, c); }
BARACUDA_D float ldexp(float x, int e) { return ::ldexpf(x, e); }
BARACUDA_D double ldexp(double x, int e) { return ::ldexp(x, e); }
// x = m 2^e with 0.5 <= |m| < 1; 0, infinities and NaN are their own m, with some e in the range of an exponent.
BARACUDA_D float frexp(float x, int* e) { return ::frexpf(x, e); }
BARACUDA_D double frexp(double x, int* e) { return ::frexp(x, e); }
BARACUDA_D bool signbit(float x) { return __float_as_int(x) < 0; }
BARACUDA_D bool signbit(double x) { return __double_as_longlong(x) < 0; }

template <class T> BARACUDA_D bool isnan(T x) { return x != x; }
template <class T> BARACUDA_D bool isinf(T x) { return abs(x) == numeric<T>::infinity(); }
template <class T> BARACUDA_D bool isfinite(T x) { return abs(x) < numeric<T>::infinity(); }

// ---- products whose factors alone leave the range -------------------------------------------------------------------

// A product or quotient that is 0, subnormal, infinite or NaN may have come to be so on the way to one that is not.
template <class T> BARACUDA_D bool lost(T x) { return !(abs(x) >= numeric<T>::tiny() && isfinite(x)); }

// x y z; where x y is lost, of the fractions and exponents of all.
template <class T> BARACUDA_D T product(T x, T y, T z) {
  const T first = x * y;
  if (!lost(first)) return first * z;
  int ex, ey, ez;
  const T m = frexp(x, &ex) * frexp(y, &ey) * frexp(z, &ez);
  return ldexp(m, ex + ey + ez);
}

// ---- maximum and minimum: NaN if either is NaN, and -0 below +0 -----------------------------------------------------

// One instruction; fmaxf differs, as it drops a NaN. PTX ISA, Floating Point Instructions: max, min (.NaN, PTX 7.0,
// sm_80).
BARACUDA_D float maximum(float a, float b) {
  float r;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}
BARACUDA_D float minimum(float a, float b) {
  float r;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}
// Neither is NaN. Doubles have no such instruction, and a comparison may return either of two zeros.
BARACUDA_D double larger(double a, double b) {
  if (a == b) return __longlong_as_double(__double_as_longlong(a) & __double_as_longlong(b));
  return a > b ? a : b;
}
BARACUDA_D double smaller(double a, double b) {
  if (a == b) return __longlong_as_double(__double_as_longlong(a) | __double_as_longlong(b));
  return a < b ? a : b;
}
BARACUDA_D double maximum(double a, double b) { return a != a || b != b ? numeric<double>::nan() : larger(a, b); }
BARACUDA_D double minimum(double a, double b) { return a != a || b != b ? numeric<double>::nan() : smaller(a, b); }
BARACUDA_D f16 maximum(f16 a, f16 b) { return __hmax_nan(a, b); }
BARACUDA_D f16 minimum(f16 a, f16 b) { return __hmin_nan(a, b); }
BARACUDA_D bf16 maximum(bf16 a, bf16 b) { return __hmax_nan(a, b); }
BARACUDA_D bf16 minimum(bf16 a, bf16 b) { return __hmin_nan(a, b); }

// The same, but the other number where one is NaN. PTX ISA, Floating Point Instructions: max, min: +0 is above -0.
BARACUDA_D float fmax(float a, float b) { return ::fmaxf(a, b); }
BARACUDA_D float fmin(float a, float b) { return ::fminf(a, b); }
BARACUDA_D double fmax(double a, double b) { return a != a ? b : b != b ? a : larger(a, b); }
BARACUDA_D double fmin(double a, double b) { return a != a ? b : b != b ? a : smaller(a, b); }

template <class T, class = enable_if<is_integer<T>>> BARACUDA_D T maximum(T a, T b) { return a < b ? b : a; }
template <class T, class = enable_if<is_integer<T>>> BARACUDA_D T minimum(T a, T b) { return b < a ? b : a; }

// ---- softplus -------------------------------------------------------------------------------------------------------

// log(1 + exp(x)), accurate in both tails. max(NaN, 0) is 0, but log1p(exp(NaN)) is not.
template <class T> BARACUDA_D T softplus(T x) { return (x > T(0) ? x : T(0)) + log1p(exp(-abs(x))); }
template <class T> BARACUDA_D T log_sigmoid(T x) { return (x < T(0) ? x : T(0)) - log1p(exp(-abs(x))); }

// ---- fast_: stated error, for 16-bit outputs and for softmax inside attention ---------------------------------------

// 2^x, relative error below 2^-22; subnormal inputs and results are 0, -inf gives +0.
// PTX ISA, Floating Point Instructions: ex2 (.approx.ftz.f32).
BARACUDA_D float fast_exp2(float x) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}

// 1 / x to 1 ulp; subnormals are 0. PTX ISA, Floating Point Instructions: rcp (.approx.ftz.f32).
BARACUDA_D float fast_rcp(float x) {
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
// tanh.approx.f32: PTX ISA, Floating Point Instructions: tanh (PTX 7.0, sm_75): relative error up to 2^-11.
BARACUDA_D float fast_tanh(float x) {
  float y;
  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// exp(x), relative error below 2^-17 for |x| < 90: the product x * log2(e) rounds once, and |x| multiplies that error.
// Subnormal results are kept.
BARACUDA_D float fast_exp(float x) { return ::exp2f(x * 1.44269504f); }

}  // namespace baracuda::math
