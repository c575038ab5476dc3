#pragma once
// logit  log(x / (1 - x)), x kept k.a away from 0 and 1.
#include "elementwise/gradients.cuh"
#include "elementwise/half_math.cuh"

namespace baracuda {
namespace half_math {

// log(x / (1 - x)) = 2 atanh(2x - 1)
BARACUDA_D float logit(float x) {
  const float y = 1.0f - x, u = x - y;
  const float c[5] = {1.00000034f, 0.333268271f, 0.201999579f, 0.121837397f, 0.196053658f};
  return magnitude(u) < 0.5f ? 2.0f * u * polynomial(u * u, c) : (::__log2f(x) - ::__log2f(y)) * ln_2;
}

}  // namespace half_math

// 2 atanh(2x - 1) near 1/2: there the quotient x / (1 - x) is near 1, and its rounding would dominate the logarithm.
template <class A> BARACUDA_D A logit(A x) {
  const A u = math::fma(A(2), x, A(-1));
  return magnitude(u) < A(0.5) ? A(2) * math::atanh(u) : math::log(x / (A(1) - x));
}

template <class T> struct Logit {
  using A = compute_t<T>;
  static BARACUDA_D A plain(A x) {
    if constexpr (is_half<T>) return half_math::logit(x);
    else return logit(x);
  }
  // eps < 0: x is not kept away from 0 and 1. 1 - x is exact above 1/2.
  static BARACUDA_D A value(A x, const Coefficients<A>& k = {A(-1)}) {
    const A eps = k.a;
    if (x < eps) return plain(eps);
    return A(1) - x < eps ? -plain(eps) : plain(x);
  }
};

namespace gradient {

// eps < 0: x is not kept away from 0 and 1.
template <class T> struct Logit {
  using A = acc_t<T>;
  static BARACUDA_D A value(A dy, A x, const Coefficients<A>& k = {A(-1)}) {
    const A eps = k.a, y = dy / (x * (A(1) - x));
    if (eps < A(0)) return where_defined(!(x < A(0) || x > A(1)), y);
    return x < eps || A(1) - x < eps ? A(0) : y;
  }
};

}  // namespace gradient
}  // namespace baracuda
