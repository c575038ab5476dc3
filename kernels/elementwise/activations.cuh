#pragma once
// activations   the logistic function, of which many activations are made: for float within a few ulp, for 16-bit
//               floats (computed in float; T is the element) just accurate enough for their results. The forms of the
//               CUDA library cost more time than memory accesses hide.
//
// The float forms share one exponential and replace IEEE division by a refined reciprocal of a number from 1 to 2^120.
// For 16 bits relative errors are below 2^-17 wherever the result is normal in the 16-bit type, a 64th of an f16 ulp.
//
// Gates have a form f(x) times a factor `by`. Where f(x) is subnormal, and so has lost digits, the factor is applied
// before the small factor of f: an exponential that underflows is applied as two square roots, with `by` between them.
#include "elementwise/functors.cuh"

namespace baracuda {

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

// x sigmoid(t) by, for t of the sign of x.
template <class T> BARACUDA_D acc_t<T> times_sigmoid(acc_t<T> x, const Logistic<acc_t<T>>& s, acc_t<T> by) {
  using A = acc_t<T>;
  const A half = x < A(0) ? s.h : A(1);
  return times_by<T>(x * half, half * s.r, by);
}

// dy (s + x s (1 - s) slope), s the sigmoid; below 0 it is dy h h r (1 + x r slope).
template <class A> BARACUDA_D A logistic_gradient(A dy, A x, bool negative, const Logistic<A>& s, A slope) {
  const A outer = negative ? s.h : A(1), other = negative ? s.r : s.h * s.h * s.r;
  return dy * outer * (s.r * math::fma(x, other * slope, A(1))) * outer;
}

}  // namespace baracuda
