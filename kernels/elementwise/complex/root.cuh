#pragma once
// root   √z.
#include "elementwise/complex_gradients.cuh"

namespace baracuda::math {

// √((|z| ± x) / 2), the smaller root from the larger one; z is scaled by an even power of two.
template <class R> BARACUDA_D complex<R> sqrt(complex<R> z) {
  const R x = z.re, y = z.im;
  if (x == R(0) && y == R(0)) return {R(0), y};
  if (isinf(y)) return {numeric<R>::infinity(), y};
  if (isinf(x)) {
    const R other = y - y;  // NaN of NaN
    return x > R(0) ? complex<R>(x, copysign(other, y)) : complex<R>(abs(other), with_sign(-x, y));
  }
  const int half = exponent(larger_part(z)) / 2;
  const complex<R> s = scaled(z, -2 * half);
  const R root = sqrt(R(0.5) * (abs(s.re) + abs(s)));
  const R large = scaled(root, half), small = scaled(abs(y), -half) / (R(2) * root);
  return x >= R(0) ? complex<R>(large, copysign(small, y)) : complex<R>(small, copysign(large, y));
}

}  // namespace baracuda::math

namespace baracuda {
namespace of_complex {

BARACUDA_COMPLEX(Sqrt, math::sqrt(z))

}  // namespace of_complex

namespace gradient {

namespace of_complex {

BARACUDA_SLOPE(Sqrt, over(math::sqrt(z), 1))

}  // namespace of_complex
}  // namespace gradient
}  // namespace baracuda
