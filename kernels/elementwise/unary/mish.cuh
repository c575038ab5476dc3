#pragma once
// mish  x tanh(log(1 + exp(x))).
#include "elementwise/activations.cuh"
#include "elementwise/gradients.cuh"
#include "elementwise/half_math.cuh"

namespace baracuda {

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

namespace half_math {

BARACUDA_D float mish(float x) {
  const float e = exp(x > 40.0f ? 40.0f : x), n = e * (e + 2.0f);
  return x * (n * math::fast_rcp(n + 2.0f));
}

}  // namespace half_math

// With t = n / (n + 2) as in mish, 1 - t^2 = 4 (n + 1) / (n + 2)^2 and n + 1 = (1 + e)^2, where the sigmoid e / (1 + e)
// cancels a factor 1 + e; every term has the factor e.
template <class T, class A> BARACUDA_D A mish_gradient(A dy, A x) {
  const A h = scaled_exp<T>(x, A(0.5)), e = h * h, r = inverse<T>(math::fma(e, e + A(2), A(2)));
  const A rest = math::fma(x, A(4) * r * ((A(1) + e) * r), (e + A(2)) * r);
  const A y = x < A(0) ? dy * h * (rest * h) : dy * (rest * e);
  return x > A(40) ? dy : y;  // there the slope is 1, and e will overflow
}

namespace gradient {

BARACUDA_GRADIENT(Mish, mish_gradient<T>(dy, x))

}  // namespace gradient

template <class T> struct Mish {
  using A = compute_t<T>;
  static BARACUDA_D A value(A x, const Coefficients<A>& = {}) {
    if constexpr (is_half<T>) return half_math::mish(x);
    else return mish(x);
  }
  static BARACUDA_D A tail(A x, A factor, const Coefficients<A>& k) {
    return gradient::Mish<T>::value(factor, x, k) * (x / (A(1) + x));
  }
};

}  // namespace baracuda
