#pragma once
// ldexp  a 2^b.
#include "elementwise/binary_gradients.cuh"

namespace baracuda {

// a 2^b: exactly scaled by the whole part of b. What multiplies the rest is neither subnormal nor near the largest.
template <class A> BARACUDA_D A scaled_by(A a, A b) {
  if (b != b) return b;
  const A near = clamp(b, A(-5000), A(5000)), whole = math::rint(near);
  const bool small = magnitude(a) < A(1);
  const A part = a * (small ? A(1ull << 60) : A(0.5)) * math::exp2(near - whole);
  return math::ldexp(part, static_cast<int>(whole) - (small ? 60 : -1));
}

BARACUDA_BINARY(Ldexp, scaled_by(a, b))

namespace partial {

// dy a 2^b log(2).
BARACUDA_D float times_power_of_2(float dy, float a, float b) {
  return static_cast<float>(scaled_by(static_cast<double>(dy) * a * 0.6931471805599453, static_cast<double>(b)));
}
BARACUDA_D double times_power_of_2(double dy, double a, double b) {
  if (b != b) return b;
  const Scaled x = Scaled(dy) * Scaled(a) * Scaled(0.6931471805599453);
  const double near = clamp(b, -10000.0, 10000.0), whole = math::rint(near);
  return math::ldexp(x.m * math::exp2(near - whole), x.e + static_cast<int>(whole));
}

BARACUDA_PARTIAL(Ldexp, scaled_by(dy, b), times_power_of_2(dy, a, b))

}  // namespace partial
}  // namespace baracuda
