#pragma once
// gelu_tanh  x sigmoid(2 sqrt(2 / pi) (x + 0.044715 x^3)), as tanh is written by a sigmoid.
#include "elementwise/activations.cuh"
#include "elementwise/gradients.cuh"

namespace baracuda {

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

BARACUDA_GATE(GeluTanh, gelu_tanh)

template <class T, class A> BARACUDA_D A gelu_tanh_gradient(A dy, A x) {
  using C = GeluConstants<A>;
  const A c = clamp(x, A(-64), A(64)), slope = math::fma(A(3) * A(C::c2), c * c, A(C::c1));
  return logistic_gradient(dy, c, x < A(0), cubic_logistic<T>(x), slope) + (x - x);  // NaN at the infinities
}

namespace gradient {

BARACUDA_GRADIENT(GeluTanh, gelu_tanh_gradient<T>(dy, x))

}  // namespace gradient
}  // namespace baracuda
