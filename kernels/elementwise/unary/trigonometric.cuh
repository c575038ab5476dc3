#pragma once
// trigonometric  sine, cosine, tangent.
#include "elementwise/gradients.cuh"

namespace baracuda {
namespace half_math {

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

BARACUDA_UNARY2(Sin, math::sin(x), half_math::sin<T>(x))
BARACUDA_UNARY2(Cos, math::cos(x), half_math::cos<T>(x))
BARACUDA_UNARY2(Tan, math::tan(x), half_math::tan<T>(x))

namespace gradient {

template <class T> BARACUDA_D acc_t<T> sine(acc_t<T> x) {
  if constexpr (is_half<T>) return half_math::sin<T>(x);
  else return math::sin(x);
}

template <class T> BARACUDA_D acc_t<T> cosine(acc_t<T> x) {
  if constexpr (is_half<T>) return half_math::cos<T>(x);
  else return math::cos(x);
}

BARACUDA_GRADIENT(Sin, (dy * cosine<T>(x)))
BARACUDA_GRADIENT(Cos, (-dy * sine<T>(x)))

template <class T> struct Tan {
  using A = acc_t<T>;
  static BARACUDA_D A value(A dy, A x, const Coefficients<A>& = {}) {
    const A c = cosine<T>(x);
    if constexpr (is_half<T>) return twice(dy, math::fast_rcp(c));
    else return dy / (c * c);
  }
};

}  // namespace gradient
}  // namespace baracuda
