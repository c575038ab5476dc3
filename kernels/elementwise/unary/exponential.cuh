#pragma once
// exponential  exponentials: of base e, 2 and 10, and exp(x) - 1.
#include "elementwise/exponential_slopes.cuh"
#include "elementwise/half_math.cuh"

namespace baracuda {

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

BARACUDA_UNARY2(Exp, precise_exp(x), math::exp(x))
BARACUDA_UNARY(Exp2, math::exp2(x))
BARACUDA_UNARY(Exp10, math::exp10(x))
BARACUDA_UNARY2(Expm1, math::expm1(x), half_math::expm1(x))

template <class A> constexpr A far_exp2 = is_same<A, float> ? A(125) : A(1021);

// dy scale 2^(x k) of a 16-bit float, as three cube roots, which overflow only where the product does. A subnormal dy
// has 16 bits more in float than in bf16.
BARACUDA_D float times_power(float dy, float x, float k, float scale) {
  const float h = math::fast_exp2(math::minimum(x * (k / 3.0f), 127.0f));
  return dy * (scale * h) * h * h;
}

template <class T, class A> BARACUDA_D A times_exp(A dy, A x) {
  if constexpr (is_half<T>) return times_power(dy, x, 1.44269504f, 1.0f);
  const A near = clamp(x, -far_exp<A>, far_exp<A>);
  return times_rest<T>(dy * math::exp(near), x - near, far_exp<A>, [](A v) { return math::exp(v); });
}

template <class T, class A> BARACUDA_D A times_exp2(A dy, A x) {
  if constexpr (is_half<T>) return times_power(dy, x, 1.0f, 0.69314718f);
  const A near = clamp(x, -far_exp2<A>, far_exp2<A>);
  const A y = dy * (A(0.6931471805599453) * math::exp2(near));
  return times_rest<T>(y, x - near, far_exp2<A>, [](A v) { return math::exp2(v); });
}

template <class T, class A> BARACUDA_D A times_exp10(A dy, A x) {
  constexpr A far = is_same<A, float> ? A(37) : A(306);
  const A near = clamp(x, -far, far), y = dy * (A(2.302585092994046) * math::exp10(near));
  return times_rest<T>(y, x - near, far, [](A v) { return math::exp10(v); });
}

namespace gradient {

BARACUDA_GRADIENT(Exp, times_exp<T>(dy, x))
BARACUDA_GRADIENT(Exp2, times_exp2<T>(dy, x))
BARACUDA_GRADIENT(Exp10, times_exp10<T>(dy, x))
BARACUDA_GRADIENT(Expm1, times_exp<T>(dy, x))

}  // namespace gradient
}  // namespace baracuda
