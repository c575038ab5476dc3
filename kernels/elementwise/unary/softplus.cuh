#pragma once
// softplus  log(1 + exp(beta x)) / beta, and the logarithm of the sigmoid.
#include "elementwise/activations.cuh"
#include "elementwise/gradients.cuh"
#include "elementwise/half_math.cuh"

namespace baracuda {
namespace half_math {

// log(1 + exp(-|x|))
BARACUDA_D float softplus_tail(float x) {
  const float e = exp(-magnitude(x));
  const float c[7] = {0.999998732f, -0.499869656f,  0.331094483f, -0.235038575f,
                      0.14922382f,  -0.0664017514f, 0.0141410076f};
  return e * polynomial(e, c);
}

BARACUDA_D float softplus(float x) { return (x > 0.0f ? x : 0.0f) + softplus_tail(x); }
BARACUDA_D float log_sigmoid(float x) { return (x < 0.0f ? x : 0.0f) - softplus_tail(x); }

}  // namespace half_math

// dy / (1 + exp(-x)), x the sum of two numbers, the second much the smaller.
template <class T, class A> BARACUDA_D A softplus_gradient(A dy, A x, A low = A(0)) {
  auto [h, r] = logistic<T>(x);
  if constexpr (!is_half<T>) h = math::fma(h, (x < A(0) ? A(0.5) : A(-0.5)) * low, h);
  const A half = x < A(0) ? h : A(1);
  return dy * half * (half * r);
}

namespace gradient {

template <class T> struct Softplus {
  using A = acc_t<T>;
  static BARACUDA_D A value(A dy, A x, const Coefficients<A>& k = {A(1), A(20)}) {
    const A t = x * k.a;
    return t > k.b ? dy : softplus_gradient<T>(dy, t, product_rest(x, k.a, t));
  }
};

BARACUDA_GRADIENT(LogSigmoid, softplus_gradient<T>(dy, -x))

}  // namespace gradient

// log(1 + exp(beta x)) / beta, x where beta x is above the threshold. The exponential multiplies the rounding of the
// product, so that it is two numbers.
template <class T> struct Softplus {
  using A = compute_t<T>;
  static BARACUDA_D A value(A x, const Coefficients<A>& k = {A(1), A(20)}) {
    const A beta = k.a, t = x * beta;
    if (t > k.b) return x;
    if constexpr (is_half<T>) {
      return half_math::softplus(t) / beta;
    } else {
      const A low = product_rest(x, beta, t), e = math::exp(-magnitude(t));
      const A tail = math::log1p(math::fma(e, t < A(0) ? low : -low, e));
      return ((t > A(0) ? t : A(0)) + (t == t ? tail : t)) / beta;
    }
  }
  static BARACUDA_D A tail(A x, A factor, const Coefficients<A>& k) {
    return gradient::Softplus<T>::value(factor, x, k) / k.a;
  }
};

template <class T> struct LogSigmoid {
  using A = compute_t<T>;
  static BARACUDA_D A value(A x, const Coefficients<A>& = {}) {
    if constexpr (is_half<T>) return half_math::log_sigmoid(x);
    else return math::log_sigmoid(x);
  }
  static BARACUDA_D A tail(A x, A factor, const Coefficients<A>& k) {
    return -gradient::LogSigmoid<T>::value(factor, x, k);
  }
};

}  // namespace baracuda
