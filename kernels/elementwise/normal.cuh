#pragma once
// normal     the normal distribution Phi: for float within a few ulp, for 16-bit floats (computed in float; T is the
//            element) just accurate enough for their results. All polynomials are minimax in relative error.
#include "elementwise/activations.cuh"

namespace baracuda {

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

}  // namespace baracuda
