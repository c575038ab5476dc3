#pragma once
// power   1 / z and z².
#include "elementwise/complex_gradients.cuh"

namespace baracuda {
namespace of_complex {

BARACUDA_COMPLEX(Reciprocal, complex<R>(R(1)) / z)
BARACUDA_COMPLEX(Square, z* z)

}  // namespace of_complex

namespace gradient {

template <class R> BARACUDA_D Slope<R> reciprocal(complex<R> z) {
  const int e = exponent_of(z);
  const complex<R> s = math::scaled(z, -e);
  return over(-(s * s), 2 * e);
}

namespace of_complex {

BARACUDA_SLOPE(Reciprocal, reciprocal(z))
BARACUDA_SLOPE(Square, (Slope<R>{z, 1}))

}  // namespace of_complex
}  // namespace gradient
}  // namespace baracuda
