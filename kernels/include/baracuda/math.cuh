#pragma once
// math       functions of float and double that templates call by one name, and the activations built on them.
//
// The CUDA library functions under their names: no fast-math variant unless the name says fast_. f32 error bounds in
// ulp (CUDA Programming Guide, Mathematical Functions): exp 1, exp2 2, log 1, log1p 1, expm1 1, tanh 2, erf 2, erfc 4,
// sin and cos 2, pow 4, rsqrt 2; sqrt and division are correctly rounded. 16-bit floats compute in float (acc_t).
#include <baracuda/types.cuh>

namespace baracuda::math {

// ---- library functions ----------------------------------------------------------------------------------------------

#define BARACUDA_MATH_1(name)                                  \
  BARACUDA_D float name(float x) { return ::name##f(x); } \
  BARACUDA_D double name(double x) { return ::name(x); }
#define BARACUDA_MATH_2(name)                                              \
  BARACUDA_D float name(float x, float y) { return ::name##f(x, y); } \
  BARACUDA_D double name(double x, double y) { return ::name(x, y); }

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
BARACUDA_D float abs(float x) { return ::fabsf(x); }
BARACUDA_D double abs(double x) { return ::fabs(x); }
BARACUDA_D void sincos(float x, float* s, float* c) { ::sincosf(x, s, c); }
BARACUDA_D void sincos(double x, double* s, double* c) { ::sincos(x, s, c); }
BARACUDA_D float ldexp(float x, int e) { return ::ldexpf(x, e); }
BARACUDA_D double ldexp(double x, int e) { return ::ldexp(x, e); }
BARACUDA_D bool signbit(float x) { return __float_as_int(x) < 0; }
BARACUDA_D bool signbit(double x) { return __double_as_longlong(x) < 0; }

template <class T> BARACUDA_D bool isnan(T x) { return x != x; }
template <class T> BARACUDA_D bool isinf(T x) { return abs(x) == numeric<T>::infinity(); }
template <class T> BARACUDA_D bool isfinite(T x) { return abs(x) < numeric<T>::infinity(); }

// ---- maximum and minimum: NaN if either is NaN, and -0 below +0 -----------------------------------------------------

// The one instruction that fmaxf (which drops a NaN) is not. PTX ISA, Floating Point Instructions: max, min (.NaN,
// PTX 7.0, sm_80).
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
BARACUDA_D double maximum(double a, double b) { return a != a || b != b ? numeric<double>::nan() : ::fmax(a, b); }
BARACUDA_D double minimum(double a, double b) { return a != a || b != b ? numeric<double>::nan() : ::fmin(a, b); }
BARACUDA_D f16 maximum(f16 a, f16 b) { return __hmax_nan(a, b); }
BARACUDA_D f16 minimum(f16 a, f16 b) { return __hmin_nan(a, b); }
BARACUDA_D bf16 maximum(bf16 a, bf16 b) { return __hmax_nan(a, b); }
BARACUDA_D bf16 minimum(bf16 a, bf16 b) { return __hmin_nan(a, b); }
template <class T, class = enable_if<is_integer<T>>> BARACUDA_D T maximum(T a, T b) { return a < b ? b : a; }
template <class T, class = enable_if<is_integer<T>>> BARACUDA_D T minimum(T a, T b) { return b < a ? b : a; }

// ---- logistic family and gelu ---------------------------------------------------------------------------------------

// Float, wherever the result is normal: sigmoid, silu and gelu_tanh within 5 ulp, gelu within 7 and the error of erfc
// (a float32 model of these formulas with exp and erfc correctly rounded gave 2.3, 2.9, 3.4 and 6.7).

// 1 / (1 + exp(-x)) with the exponent never positive: no overflow, and relative accuracy in the negative tail.
template <class T> BARACUDA_D T sigmoid(T x) {
  const T e = exp(-abs(x));
  return (x < T(0) ? e : T(1)) / (T(1) + e);
}

// x * exp(t) / (1 + exp(t)), t + tl the argument to twice the precision: the common form of silu and gelu_tanh.
// Far down exp(t) would be subnormal while the product is not; there the exponential is applied as two halves.
template <class T> BARACUDA_D T times_sigmoid(T x, T t, T tl) {
  const T far = is_same<T, float> ? T(-80) : T(-700);
  if (t < far) {
    const T half = exp(t * T(0.5));
    return x * half * fma(half, tl, half);
  }
  T e = exp(-abs(t));
  e = fma(e, t < T(0) ? tl : -tl, e);
  return (t < T(0) ? x * e : x) / (T(1) + e);
}

template <class T> BARACUDA_D T silu(T x) { return times_sigmoid(x, x, T(0)); }  // NaN at -inf, as x * sigmoid(x) is

// log(1 + exp(x)), accurate in both tails. max(NaN, 0) is 0, but log1p(exp(NaN)) is not.
template <class T> BARACUDA_D T softplus(T x) { return (x > T(0) ? x : T(0)) + log1p(exp(-abs(x))); }
template <class T> BARACUDA_D T log_sigmoid(T x) { return (x < T(0) ? x : T(0)) - log1p(exp(-abs(x))); }

// Constants as head + tail: the tails of gelu are exp of a large argument, whose rounding would be multiplied by it.
template <class T> struct GeluConstants;
template <> struct GeluConstants<float> {
  static constexpr float sqrt_half = 0.7071067690849304f, sqrt_half_low = 1.2101617485882343e-08f;
  static constexpr float c1 = 1.5957691669464111f, c1_low = -4.534068054340423e-08f;   // 2 sqrt(2 / pi)
  static constexpr float c2 = 0.07135481387376785f, c2_low = 2.3988324659995897e-09f;  // 0.044715 c1
};
template <> struct GeluConstants<double> {
  static constexpr double sqrt_half = 0.7071067811865476, sqrt_half_low = -4.833646656726457e-17;
  static constexpr double c1 = 1.5957691216057308, c1_low = -9.96930880911092e-17;
  static constexpr double c2 = 0.07135481627260025, c2_low = -6.175149918155315e-19;
};

// x / 2 * erfc(-x / sqrt 2). The argument z + zl is carried to twice the precision in the negative tail, where
// erfc(z + zl) = erfc(z) - 2 / sqrt(pi) exp(-z^2) zl to first order.
template <class T> BARACUDA_D T gelu(T x) {
  using C = GeluConstants<T>;
  const T z = -x * C::sqrt_half;
  T y = erfc(z);
  if (z > T(0.5)) {
    const T zl = fma(-x, C::sqrt_half, -z) - x * C::sqrt_half_low;
    y = fma(exp(-z * z) * T(-1.1283791670955126), zl, y);
  }
  return T(0.5) * x * y;
}

// x / 2 * (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) = x * sigmoid(x (c1 + c2 x^2)), with that argument in two words.
// Beyond |x| = 64 the sigmoid is 0 or 1 in float and in double, so the clamp only keeps the square finite.
template <class T> BARACUDA_D T gelu_tanh(T x) {
  using C = GeluConstants<T>;
  const T c = x > T(64) ? T(64) : x < T(-64) ? T(-64) : x;
  const T s = c * c, sl = fma(c, c, -s);
  const T q = C::c2 * s, ql = fma(C::c2, s, -q);
  const T p = q + C::c1, d = p - q;                              // two-sum: p + (q - (p - d)) + (c1 - d) is exact
  const T pl = (q - (p - d)) + (C::c1 - d) + (ql + fma(C::c2, sl, fma(C::c2_low, s, C::c1_low)));
  const T t = c * p, tl = fma(c, p, -t) + c * pl;
  return times_sigmoid(x, t, tl);
}

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

// exp(x), relative error below 2^-17 for |x| < 90: the product x * log2(e) rounds once, and |x| multiplies that.
// Subnormal results are kept.
BARACUDA_D float fast_exp(float x) { return ::exp2f(x * 1.44269504f); }

// For f16 and bf16 outputs. Relative error below 2^-15 wherever the float result is normal and below 2^-17 where it is
// normal in f16: at most a 32nd of half an ulp of either. Use the same function in the wide and the narrow row.
BARACUDA_D float fast_sigmoid(float x) {
  const float e = fast_exp(-abs(x));
  return (x < 0.0f ? e : 1.0f) * fast_rcp(1.0f + e);
}
BARACUDA_D float fast_silu(float x) {
  const float e = fast_exp(-abs(x));
  return (x < 0.0f ? x * e : x) * fast_rcp(1.0f + e);
}
BARACUDA_D float fast_gelu_tanh(float x) {
  const float t = x * fma(0.07135481627f * x, x, 1.59576912f);
  const float e = fast_exp(-abs(t));
  return (x < 0.0f ? x * e : x) * fast_rcp(1.0f + e);
}
BARACUDA_D float fast_gelu(float x) { return 0.5f * x * ::erfcf(x * -0.70710678f); }  // tail not compensated

}  // namespace baracuda::math
