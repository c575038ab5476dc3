#pragma once
// activations   functions too dear to hide behind memory if written with the CUDA library: for float within a few ulp,
//               for 16-bit floats (namespace half_math, computed in float) just accurate enough for their results.
//
// The float forms share one exponential and replace IEEE division by a refined reciprocal of a number from 1 to 2^120.
// half_math: relative errors below 2^-17 wherever the result is normal in the 16-bit type, a 64th of an f16 ulp.
// All polynomials are minimax in relative error, fitted for this file.
#include <baracuda/math.cuh>

namespace baracuda {

BARACUDA_D float magnitude(float x) { return ::fabsf(x); }
BARACUDA_D double magnitude(double x) { return ::fabs(x); }

// c[0] + c[1] x + … + c[N - 1] x^(N - 1)
template <int N> BARACUDA_D float polynomial(float x, const float (&c)[N]) {
  float sum = c[N - 1];
#pragma unroll
  for (int k = N - 2; k >= 0; --k) sum = math::fma(sum, x, c[k]);
  return sum;
}

// ---- float ----------------------------------------------------------------------------------------------------------

// 1 / d within an ulp, for 1 <= d < 2^120.
BARACUDA_D float inverse(float d) {
  const float r = math::fast_rcp(d);
  return math::fma(math::fma(-d, r, 1.0f), r, r);
}
BARACUDA_D double inverse(double d) { return 1.0 / d; }

BARACUDA_D float sigmoid(float x) {
  const float e = math::exp(-magnitude(x));
  return (x < 0.0f ? e : 1.0f) * inverse(1.0f + e);
}
BARACUDA_D double sigmoid(double x) { return math::sigmoid(x); }

// x sigmoid(t + tl). The exponential is applied as two square roots, so that it is never subnormal before the product is.
BARACUDA_D float times_sigmoid(float x, float t, float tl) {
  float h = math::exp(-0.5f * magnitude(t));
  h = math::fma(h, (t < 0.0f ? 0.5f : -0.5f) * tl, h);
  return (t < 0.0f ? x * h * h : x) * inverse(math::fma(h, h, 1.0f));
}
BARACUDA_D float silu(float x) { return times_sigmoid(x, x, 0.0f); }
BARACUDA_D double silu(double x) { return math::silu(x); }

// x sigmoid(x (c1 + c2 x^2)), the argument in two words: rounded to one it would be wrong by 90 ulp of the tail.
// Beyond |x| = 64 the sigmoid is 0 or 1, so the clamp only keeps the square finite.
BARACUDA_D float gelu_tanh(float x) {
  using C = math::GeluConstants<float>;
  const float c = x > 64.0f ? 64.0f : x < -64.0f ? -64.0f : x;
  const float s = c * c, sl = math::fma(c, c, -s);
  const float p = math::fma(C::c2, s, C::c1), d = p - C::c1;  // two-sum of c1 and the exact product c2 s
  const float pl = math::fma(C::c2, s, -d) + (C::c1 - (p - d)) + math::fma(C::c2, sl, math::fma(C::c2_low, s, C::c1_low));
  const float t = c * p;
  return times_sigmoid(x, t, math::fma(c, p, -t) + c * pl);
}
BARACUDA_D double gelu_tanh(double x) { return math::gelu_tanh(x); }

// The normal distribution: density exp(-x^2 / 2), its factor 1 / sqrt(2 pi) left out, and ratio with
// Phi(-|x|) = density ratio, which is w P(w) with w = 1 / (1 + |x| / k).
struct Normal {
  float density, ratio;

  BARACUDA_D float cdf(float x) const { return x < 0.0f ? density * ratio : 1.0f - density * ratio; }
};
BARACUDA_D Normal normal(float x) {
  const float z = x > 64.0f ? 64.0f : x < -64.0f ? -64.0f : x;  // beyond, all is 0; keeps NaN
  const float s = z * z, low = math::fma(z, z, -s);
  float e = math::exp(-0.5f * s);
  e = math::fma(e, -0.5f * low, e);
  const float w = inverse(math::fma(magnitude(z), 0.25f, 1.0f));
  const float c[10] = {0.0997460439f, 0.09952674f,   0.0952459622f, 0.0732001342f,  0.0833301665f,
                       0.0186713213f, 0.0215209346f, 0.0566728493f, -0.0648655397f, 0.016951392f};
  return {e, w * polynomial(w, c)};
}
BARACUDA_D float gelu(float x) {
  const Normal n = normal(x);  // far down Phi is subnormal where x Phi is not
  return x < 0.0f ? x * n.ratio * n.density : x * (1.0f - n.ratio * n.density);
}
BARACUDA_D double gelu(double x) { return math::gelu(x); }

// x tanh(log(1 + exp(x))) = x n / (n + 2) with n = e (e + 2), e = exp(x). Beyond x = 40 the quotient is 1 in double too.
// Far down the quotient is e, which may be subnormal where the product is not: there e is applied as two square roots.
template <class A> BARACUDA_D A mish(A x) {
  if (x < (is_same<A, float> ? A(-80) : A(-700))) {
    const A half = math::exp(x * A(0.5));
    return x * half * half;
  }
  const A e = math::exp(x > A(40) ? A(40) : x), n = e * (e + A(2));
  return x * (n * inverse(n + A(2)));
}

// ---- float, for 16-bit results --------------------------------------------------------------------------------------

namespace half_math {

constexpr float log2_e = 1.44269504f, ln_2 = 0.69314718f, log10_2 = 0.30103f;

BARACUDA_D float exp(float x) { return math::fast_exp(x); }

// log(1 + m) / m for -1/4 < m < 0.3; further out the hardware's absolute error is small enough against the logarithm.
BARACUDA_D float log1p_series(float m) {
  const float c[6] = {1.00000169f, -0.499983305f, 0.332917484f, -0.250991445f, 0.215521939f, -0.161445383f};
  return polynomial(m, c);
}
BARACUDA_D float log_of_sum(float m, float x, float near_scale, float far_scale) {  // of x = 1 + m
  return m > -0.25f && m < 0.3f ? m * log1p_series(m) * near_scale : ::__log2f(x) * far_scale;
}
BARACUDA_D float log(float x) { return log_of_sum(x - 1.0f, x, 1.0f, ln_2); }
BARACUDA_D float log2(float x) { return log_of_sum(x - 1.0f, x, log2_e, 1.0f); }
BARACUDA_D float log10(float x) { return log_of_sum(x - 1.0f, x, 0.43429448f, log10_2); }
BARACUDA_D float log1p(float x) { return log_of_sum(x, 1.0f + x, 1.0f, ln_2); }

BARACUDA_D float expm1(float x) {
  const float c[5] = {0.999999519f, 0.499973154f, 0.166678286f, 0.0421003234f, 0.00833328013f};
  return magnitude(x) < 0.5f ? x * polynomial(x, c) : exp(x) - 1.0f;
}

// log(1 + exp(-|x|))
BARACUDA_D float softplus_tail(float x) {
  const float e = exp(-magnitude(x));
  const float c[7] = {0.999998732f, -0.499869656f, 0.331094483f, -0.235038575f, 0.14922382f, -0.0664017514f, 0.0141410076f};
  return e * polynomial(e, c);
}
BARACUDA_D float softplus(float x) { return (x > 0.0f ? x : 0.0f) + softplus_tail(x); }
BARACUDA_D float log_sigmoid(float x) { return (x < 0.0f ? x : 0.0f) - softplus_tail(x); }

// log(x / (1 - x)) = 2 atanh(2x - 1)
BARACUDA_D float logit(float x) {
  const float y = 1.0f - x, u = x - y;
  const float c[5] = {1.00000034f, 0.333268271f, 0.201999579f, 0.121837397f, 0.196053658f};
  return magnitude(u) < 0.5f ? 2.0f * u * polynomial(u * u, c) : (::__log2f(x) - ::__log2f(y)) * ln_2;
}

template <class T> BARACUDA_D Normal normal(float x) {
  const float e = ::exp2f(x * x * (-0.5f * log2_e)), z = magnitude(x);
  if constexpr (is_same<T, bf16>) {  // within 2^-14, a 64th of a bf16 ulp
    const float w = math::fast_rcp(math::fma(z, 0.25f, 1.0f));
    const float c[5] = {0.10120011f, 0.08171694f, 0.17702144f, -0.09993152f, 0.23996412f};
    return {e, w * polynomial(w, c)};
  } else {
    const float w = math::fast_rcp(math::fma(z, 0.2f, 1.0f));
    const float c[7] = {0.0803500175f, 0.0710941372f, 0.13252777f, -0.123164126f, 0.446910676f, -0.386806913f, 0.279089063f};
    return {e, w * polynomial(w, c)};
  }
}
template <class T> BARACUDA_D float normcdf(float x) { return normal<T>(x).cdf(x); }
template <class T> BARACUDA_D float gelu(float x) { return x * normcdf<T>(x); }
template <class T> BARACUDA_D float erfc(float x) { return 2.0f * normcdf<T>(x * -1.41421356f); }

BARACUDA_D float mish(float x) {
  const float e = exp(x > 40.0f ? 40.0f : x), n = e * (e + 2.0f);
  return x * (n * math::fast_rcp(n + 2.0f));
}

// ---- sine, cosine, tangent of f16 and bf16 values ----

// x = quadrant pi / 2 + r, |r| <= pi / 4.
struct Angle {
  float r;
  u32 quadrant;
};

__constant__ u32 two_over_pi[6] = {0xa2f9836e, 0x4e441529, 0xfc2757d1, 0xf534ddc0, 0xdb629599, 0x3c439041};

// |x| >= 2^15, a bf16: x = m 2^q with 8 bits of m (Payne and Hanek 1983). Of 2 / pi only the 64 bits that make a product
// below 4 matter: those before give whole turns, those after less than 2^-53.
BARACUDA_D Angle reduce_large(float x) {
  const u32 b = __float_as_uint(x);
  const u32 m = (b >> 16 & 0x7f) | 0x80, exponent = b >> 23 & 0xff, first = exponent - 136;  // q - 2, q = exponent - 134
  const u32* const w = two_over_pi + first / 32;
  const u32 high = __funnelshift_l(w[1], w[0], first % 32), low = __funnelshift_l(w[2], w[1], first % 32);
  const u64 turns = m * (static_cast<u64>(high) << 32 | low);
  const u32 quadrant = static_cast<u32>((turns + (1ull << 61)) >> 62);
  const float r = static_cast<float>(static_cast<i64>(turns - (static_cast<u64>(quadrant) << 62))) * 3.4061215800304e-19f;
  if (exponent == 0xff) return {x - x, 0};
  return x < 0.0f ? Angle{-r, 0u - quadrant} : Angle{r, quadrant};
}
template <class T> BARACUDA_D Angle reduce(float x) {
  if constexpr (is_same<T, bf16>) {
    if (magnitude(x) >= 32768.0f) return reduce_large(x);
  }
  const float shifted = math::fma(x, 0.636619747f, 12582912.0f), k = shifted - 12582912.0f;  // to the nearest integer
  float r = math::fma(k, -1.57079601f, x);                                                    // pi / 2 in three pieces
  r = math::fma(k, -3.13916473e-7f, r);
  r = math::fma(k, -5.39030253e-15f, r);
  return {r, __float_as_uint(shifted)};
}
BARACUDA_D float sine_polynomial(float s) {  // sin(r) / r, s = r^2
  const float c[4] = {1.0f, -0.166666492f, 0.00833196312f, -0.000194950432f};
  return polynomial(s, c);
}
BARACUDA_D float cosine_polynomial(float s) {
  const float c[4] = {1.0f, -0.499998325f, 0.0416539138f, -0.00135731272f};
  return polynomial(s, c);
}
BARACUDA_D float sine_in(const Angle& a, u32 turn) {
  const float s = a.r * a.r;
  const u32 q = a.quadrant + turn;
  const float y = q & 1 ? cosine_polynomial(s) : a.r * sine_polynomial(s);
  return q & 2 ? -y : y;
}
template <class T> BARACUDA_D float sin(float x) { return sine_in(reduce<T>(x), 0); }
template <class T> BARACUDA_D float cos(float x) { return sine_in(reduce<T>(x), 1); }
template <class T> BARACUDA_D float tan(float x) {
  const Angle a = reduce<T>(x);
  const float s = a.r * a.r, sine = a.r * sine_polynomial(s), cosine = cosine_polynomial(s);
  return a.quadrant & 1 ? -cosine * math::fast_rcp(sine) : sine * math::fast_rcp(cosine);
}

}  // namespace half_math
}  // namespace baracuda
