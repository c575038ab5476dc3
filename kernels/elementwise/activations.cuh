#pragma once
// activations   functions whose CUDA library forms cost more time than memory accesses hide: for float within a few
//               ulp, for 16-bit floats (computed in float; T is the element) just accurate enough for their results.
//
// The float forms share one exponential and replace IEEE division by a refined reciprocal of a number from 1 to 2^120.
// For 16 bits relative errors are below 2^-17 wherever the result is normal in the 16-bit type, a 64th of an f16 ulp.
// All polynomials are minimax in relative error, fitted for this file.
//
// Gates have a form f(x) times a factor `by`. Where f(x) is subnormal, and so has lost digits, the factor is applied
// before the small factor of f: an exponential that underflows is applied as two square roots, with `by` between them.
#include <baracuda/math.cuh>

namespace baracuda {

BARACUDA_D float magnitude(float x) { return ::fabsf(x); }
BARACUDA_D double magnitude(double x) { return ::fabs(x); }
// NaN stays NaN.
BARACUDA_D float clamp(float x, float low, float high) { return math::minimum(math::maximum(x, low), high); }
BARACUDA_D double clamp(double x, double low, double high) { return x < low ? low : x > high ? high : x; }

// c[0] + c[1] x + … + c[N - 1] x^(N - 1)
template <class A, int N> BARACUDA_D A polynomial(A x, const A (&c)[N]) {
  A sum = c[N - 1];
#pragma unroll
  for (int k = N - 2; k >= 0; --k) sum = math::fma(sum, x, c[k]);
  return sum;
}

// 1 / d, for 1 <= d < 2^120: in float within an ulp.
template <class T> BARACUDA_D acc_t<T> inverse(acc_t<T> d) {
  if constexpr (is_same<T, double>) return 1.0 / d;
  const float r = math::fast_rcp(static_cast<float>(d));
  return is_half<T> ? r : math::fma(math::fma(-static_cast<float>(d), r, 1.0f), r, r);
}

// exp(k x). FLUSH: for 16 bits a subnormal result may be 0, as it always may for f16; this saves three instructions.
template <class T, bool FLUSH = false> BARACUDA_D acc_t<T> scaled_exp(acc_t<T> x, acc_t<T> k) {
  if constexpr (!is_half<T>) return math::exp(k * x);
  else if constexpr (FLUSH || is_same<T, f16>) return math::fast_exp2(x * (k * 1.44269504f));
  else return ::exp2f(x * (k * 1.44269504f));
}

// exp(x) within an ulp under every toolkit: the hardware's 2^x alone loses one and a half. k is x log2(e) to the
// nearest integer, ln(2) is split in two, and 2^k is applied as two factors, so that it neither overflows nor rounds
// before the result.
BARACUDA_D float precise_exp(float x) {
  const float near = clamp(x, -104.0f, 89.0f), k = math::rint(near * 1.44269504f);
  const float r = math::fma(k, -1.42860677e-6f, math::fma(k, -0.693145752f, near));
  const float c[5] = {0.49999994f, 0.166665211f, 0.041668389f, 0.00836871099f, 0.00138146104f};
  const float e = math::fma(r * r, polynomial(r, c), r) + 1.0f;
  const int high = static_cast<int>(k) / 2, low = static_cast<int>(k) - high;
  return e * __int_as_float((high + 127) << 23) * __int_as_float((low + 127) << 23);
}
BARACUDA_D double precise_exp(double x) { return math::exp(x); }

// What the rounded product t = x y lacks; 0 where t has left the range.
template <class A> BARACUDA_D A product_rest(A x, A y, A t) { return math::isfinite(t) ? math::fma(x, y, -t) : A(0); }

// ---- the logistic family --------------------------------------------------------------------------------------------

// h = exp(-|x| / 2) and r = 1 / (1 + h^2): sigmoid(|x|) is r, and sigmoid(-|x|) is h h r.
template <class A> struct Logistic {
  A h, r;
};
template <class T, bool FLUSH = false> BARACUDA_D Logistic<acc_t<T>> logistic(acc_t<T> x) {
  using A = acc_t<T>;
  const A h = scaled_exp<T, FLUSH>(magnitude(x), A(-0.5));
  return {h, inverse<T>(math::fma(h, h, A(1)))};
}

// first second by; first by overflows only if the result does. What f16 keeps of a subnormal float is 0.
template <class T> BARACUDA_D acc_t<T> times_by(acc_t<T> first, acc_t<T> second, acc_t<T> by) {
  using A = acc_t<T>;
  const A y = first * second;
  return !is_same<T, f16> && magnitude(y) < numeric<A>::tiny() ? first * by * second : y * by;
}

template <class T, bool FLUSH = false> BARACUDA_D acc_t<T> sigmoid(acc_t<T> x, acc_t<T> by) {
  using A = acc_t<T>;
  const auto [h, r] = logistic<T, FLUSH>(x);
  const A half = x < A(0) ? h : A(1);
  return times_by<T>(half, half * r, by);
}

// x sigmoid(t) by, for t of the sign of x.
template <class T> BARACUDA_D acc_t<T> times_sigmoid(acc_t<T> x, const Logistic<acc_t<T>>& s, acc_t<T> by) {
  using A = acc_t<T>;
  const A half = x < A(0) ? s.h : A(1);
  return times_by<T>(x * half, half * s.r, by);
}
template <class T, bool FLUSH = false> BARACUDA_D acc_t<T> silu(acc_t<T> x, acc_t<T> by) {
  return times_sigmoid<T>(x, logistic<T, FLUSH>(x), by);
}

// Constants as head + tail: the exponential of a large argument multiplies its rounding.
template <class A> struct GeluConstants;
template <> struct GeluConstants<float> {
  static constexpr float c1 = 1.5957691669464111f, c1_low = -4.534068054340423e-08f;   // 2 sqrt(2 / pi)
  static constexpr float c2 = 0.07135481387376785f, c2_low = 2.3988324659995897e-09f;  // 0.044715 c1
};
template <> struct GeluConstants<double> {
  static constexpr double c1 = 1.5957691216057308, c1_low = -9.96930880911092e-17;
  static constexpr double c2 = 0.07135481627260025, c2_low = -6.175149918155315e-19;
};

// The logistic of x (c1 + c2 x^2), with that argument as two numbers: rounded to one, the tail would be wrong by 90
// ulp. Beyond |x| = 64 the sigmoid is 0 or 1, so the clamp only keeps the square finite.
template <class T, bool FLUSH = false> BARACUDA_D Logistic<acc_t<T>> cubic_logistic(acc_t<T> x) {
  using A = acc_t<T>;
  using C = GeluConstants<A>;
  if constexpr (is_half<T>) return logistic<T, FLUSH>(x * math::fma(C::c2 * x, x, C::c1));
  const A c = clamp(x, A(-64), A(64)), s = c * c, sl = math::fma(c, c, -s);
  const A p = math::fma(A(C::c2), s, A(C::c1)), d = p - C::c1;  // two-sum of c1 and the exact product c2 s
  const A pl = math::fma(A(C::c2), s, -d) + (C::c1 - (p - d)) +
               math::fma(A(C::c2), sl, math::fma(A(C::c2_low), s, A(C::c1_low)));
  const A t = c * p, tl = math::fma(c, p, -t) + c * pl;
  A h = math::exp(A(-0.5) * magnitude(t));
  h = math::fma(h, (t < A(0) ? A(0.5) : A(-0.5)) * tl, h);
  return {h, inverse<T>(math::fma(h, h, A(1)))};
}
template <class T, bool FLUSH = false> BARACUDA_D acc_t<T> gelu_tanh(acc_t<T> x, acc_t<T> by) {
  return times_sigmoid<T>(x, cubic_logistic<T, FLUSH>(x), by);
}

// ---- the normal distribution ----------------------------------------------------------------------------------------

// g = exp(-x^2 / 4), and the ratio for which Phi(-|x|) = g g ratio.
template <class A> struct Normal {
  A g, ratio;
};

// exp(-k x^2), for k a power of 2 and at least 1/4, the square as two numbers. Beyond |x| = 64 it is 0.
template <class A> BARACUDA_D A bell(A x, A k) {
  const A z = clamp(x, A(-64), A(64)), s = z * z, low = math::fma(z, z, -s);
  const A e = math::exp(-k * s);
  return math::fma(e, -k * low, e);
}

// That ratio as w P(w), w = 1 / (1 + |x| / 4).
BARACUDA_D float normal_ratio(float w) {
  const float c[10] = {0.0997460439f, 0.09952674f,   0.0952459622f, 0.0732001342f,  0.0833301665f,
                       0.0186713213f, 0.0215209346f, 0.0566728493f, -0.0648655397f, 0.016951392f};
  return w * polynomial(w, c);
}
template <class T, bool FLUSH = false> BARACUDA_D Normal<acc_t<T>> normal(acc_t<T> x) {
  using A = acc_t<T>;
  if constexpr (is_same<T, double>) {
    return {bell(x, 0.25), 0.5 * math::erfcx(magnitude(x) * 0.7071067811865476)};
  } else if constexpr (is_same<T, float>) {
    return {bell(x, 0.25f), normal_ratio(inverse<T>(math::fma(math::minimum(magnitude(x), 64.0f), 0.25f, 1.0f)))};
  } else {
    const A g = scaled_exp<T, FLUSH>(x * x, -0.25f), z = magnitude(x);
    // within 2^-15 for |x| < 20, beyond which no factor keeps it from underflowing
    if constexpr (is_same<T, bf16> && !FLUSH) {
      const float w = math::fast_rcp(math::fma(z, 0.3f, 1.0f));
      const float c[6] = {0.11992938f, 0.11537797f, 0.13740544f, -0.00388824f, 0.20428659f, -0.07310313f};
      return {g, w * polynomial(w, c)};
    } else if constexpr (is_same<T, bf16>) {  // within 2^-14, a 64th of a bf16 ulp, for |x| < 14
      const float w = math::fast_rcp(math::fma(z, 0.25f, 1.0f));
      const float c[5] = {0.10120011f, 0.08171694f, 0.17702144f, -0.09993152f, 0.23996412f};
      return {g, w * polynomial(w, c)};
    } else {
      const float w = math::fast_rcp(math::fma(z, 0.2f, 1.0f));
      const float c[7] = {0.0803500175f, 0.0710941372f, 0.13252777f, -0.123164126f,
                          0.446910676f,  -0.386806913f, 0.279089063f};
      return {g, w * polynomial(w, c)};
    }
  }
}
template <class T, bool FLUSH = false> BARACUDA_D acc_t<T> gelu(acc_t<T> x, acc_t<T> by) {
  using A = acc_t<T>;
  const auto [g, ratio] = normal<T, FLUSH>(x);
  const A m = ratio * g, cdf = x < A(0) ? m * g : math::fma(-m, g, A(1));
  if constexpr (is_half<T> && FLUSH) return x * cdf;
  const bool tail = x < A(-1);
  // Far out ratio g alone would be subnormal where the product with x and `by` is not.
  return times_by<T>(tail ? x * ratio * g : x, tail ? g : cdf, by);
}

// x tanh(log(1 + exp(x))) = x n / (n + 2) with n = e (e + 2), e = exp(x). Beyond x = 40 the quotient is 1 in double
// too. For very negative x the quotient is e, which may be subnormal where the product is not: there e is applied as
// two square roots.
template <class A> BARACUDA_D A mish(A x) {
  if (x < (is_same<A, float> ? A(-80) : A(-700))) {
    const A half = math::exp(x * A(0.5));
    return x * half * half;
  }
  const A e = math::exp(x > A(40) ? A(40) : x), n = e * (e + A(2));
  return x * (n * inverse<A>(n + A(2)));
}

// ---- the rest, for 16-bit results -----------------------------------------------------------------------------------

namespace half_math {

constexpr float log2_e = 1.44269504f, ln_2 = 0.69314718f, log10_2 = 0.30103f;

BARACUDA_D float exp(float x) { return math::fast_exp(x); }

// log(1 + m) / m for -1/4 < m < 0.3; beyond, the hardware's absolute error is small against the logarithm.
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
  const float c[7] = {0.999998732f, -0.499869656f,  0.331094483f, -0.235038575f,
                      0.14922382f,  -0.0664017514f, 0.0141410076f};
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

template <class T> BARACUDA_D float erfc(float x) {
  const auto [g, ratio] = normal<T, true>(x * -1.41421356f);
  const float tail = g * ratio * g;
  return 2.0f * (x > 0.0f ? tail : 1.0f - tail);
}

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

// |x| >= 2^15, a bf16: x = m 2^q with 8 bits of m (Payne and Hanek 1983). Of 2 / pi only 64 bits matter: those before
// them give whole turns, those after them less than 2^-53.
BARACUDA_D Angle reduce_large(float x) {
  const u32 b = __float_as_uint(x);
  const u32 m = (b >> 16 & 0x7f) | 0x80, exponent = b >> 23 & 0xff,
            first = exponent - 136;  // q - 2, q = exponent - 134
  const u32* const w = two_over_pi + first / 32;
  const u32 high = __funnelshift_l(w[1], w[0], first % 32), low = __funnelshift_l(w[2], w[1], first % 32);
  const u64 turns = m * (static_cast<u64>(high) << 32 | low);
  const u32 quadrant = static_cast<u32>((turns + (1ull << 61)) >> 62);
  const float r =
      static_cast<float>(static_cast<i64>(turns - (static_cast<u64>(quadrant) << 62))) * 3.4061215800304e-19f;
  if (exponent == 0xff) return {x - x, 0};
  return x < 0.0f ? Angle{-r, 0u - quadrant} : Angle{r, quadrant};
}
template <class T> BARACUDA_D Angle reduce(float x) {
  if constexpr (is_same<T, bf16>) {
    if (magnitude(x) >= 32768.0f) return reduce_large(x);
  }
  const float shifted = math::fma(x, 0.636619747f, 12582912.0f), k = shifted - 12582912.0f;  // to the nearest integer
  float r = math::fma(k, -1.57079601f, x);                                                   // pi / 2 in three parts
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
