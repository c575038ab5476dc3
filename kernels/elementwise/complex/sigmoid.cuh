#pragma once
// sigmoid   1 / (1 + e^-z).
#include "elementwise/complex/exponential.cuh"

namespace baracuda::math {

// The numerator and denominator of sigmoid: 1 and 1 + e^-z, or e^z and 1 + e^z, whichever exponential is below 1. The
// denominator is 1 - e^-|x| + 2 e^-|x| cos²(y / 2) + …i, in which nothing cancels beside the poles.
template <class R> struct Sigmoid {
  complex<R> above, below, decay;  // decay: e^∓z
};
template <class R> BARACUDA_D Sigmoid<R> sigmoid_parts(complex<R> z) {
  const R size = exp(-abs(z.re));
  const complex<R> half = cis(R(0.5) * z.im);
  const R sine = R(2) * half.re * half.im, cosine = R(1) - R(2) * half.im * half.im;
  const bool right = z.re >= R(0);
  const complex<R> decay = {size * cosine, right ? -(size * sine) : size * sine};
  const R re = R(2) * size * half.re * half.re - expm1(-abs(z.re));
  return {right ? complex<R>(R(1)) : decay, {re, decay.im}, decay};
}
template <class R> BARACUDA_D complex<R> sigmoid(complex<R> z) {
  if (isinf(z.re)) return {z.re > R(0) ? R(1) : R(0), R(0)};
  const Sigmoid<R> parts = sigmoid_parts(z);
  return parts.above / parts.below;
}

}  // namespace baracuda::math

namespace baracuda {
namespace of_complex {

BARACUDA_COMPLEX(Sigmoid, math::sigmoid(z))

}  // namespace of_complex

namespace gradient {

// e^-z / (1 + e^-z)², the same with e^z.
template <class R> BARACUDA_D Slope<R> sigmoid(complex<R> z) {
  const complex<R> below = math::sigmoid_parts(z).below, turn = math::cis(z.re >= R(0) ? -z.im : z.im);
  const Slope<R> decay = far(-math::abs(z.re), turn);
  return {decay.m / below / below, decay.e};
}

namespace of_complex {

BARACUDA_SLOPE(Sigmoid, sigmoid(z))

}  // namespace of_complex
}  // namespace gradient
}  // namespace baracuda
