#pragma once
// error_function  erf and 1 - erf.
#include "elementwise/gradients.cuh"
#include "elementwise/normal.cuh"

namespace baracuda {
namespace half_math {

template <class T> BARACUDA_D float erfc(float x) {
  const auto [g, ratio] = normal<T, true>(x * -1.41421356f);
  const float tail = g * ratio * g;
  return 2.0f * (x > 0.0f ? tail : 1.0f - tail);
}

}  // namespace half_math

BARACUDA_UNARY(Erf, math::erf(x))
BARACUDA_UNARY2(Erfc, math::erfc(x), half_math::erfc<T>(x))

namespace gradient {

BARACUDA_GRADIENT(Erf, A(1.1283791670955126) * twice(dy, bell(x, A(0.5))))
BARACUDA_GRADIENT(Erfc, A(-1.1283791670955126) * twice(dy, bell(x, A(0.5))))

}  // namespace gradient
}  // namespace baracuda
