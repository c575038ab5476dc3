#pragma once
// polar  the angle and the length of a vector of two components.
#include "elementwise/binary_gradients.cuh"

namespace baracuda {

BARACUDA_BINARY(Atan2, math::atan2(a, b))
BARACUDA_BINARY(Hypot, math::hypot(a, b))

namespace partial {

// The distance from the origin, also where its square or itself leaves the range.
BARACUDA_D double wide_hypot(float a, float b) {
  return math::sqrt(math::fma(static_cast<double>(a), static_cast<double>(a), static_cast<double>(b) * b));
}
BARACUDA_D Scaled wide_hypot(double a, double b) {
  const bool large = magnitude(a) > 1.0 || magnitude(b) > 1.0;
  const double scale = large ? 0.25 : 0x1p512;
  return Scaled(math::hypot(a * scale, b * scale)) / Scaled(scale);
}

// dy other / (a² + b²), and 0 at the origin.
template <class T, class A> BARACUDA_D A over_square(A dy, A other, A a, A b) {
  if (a == A(0) && b == A(0)) return dy * A(0);
  const Wide<T> h = wide_hypot(a, b);
  return narrow<A>(Wide<T>(dy) * (Wide<T>(other) / h) / h);
}

BARACUDA_PARTIAL(Atan2, (over_square<T>(dy, b, a, b)), (over_square<T>(dy, -a, a, b)))
BARACUDA_PARTIAL(Hypot, narrow<A>(W(dy) * (W(a) / wide_hypot(a, b))), narrow<A>(W(dy) * (W(b) / wide_hypot(a, b))))

}  // namespace partial
}  // namespace baracuda
