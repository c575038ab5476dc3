#pragma once
// arc  inverse sine, cosine, tangent.
#include "elementwise/gradients.cuh"

namespace baracuda {

BARACUDA_UNARY(Asin, math::asin(x))
BARACUDA_UNARY(Acos, math::acos(x))
BARACUDA_UNARY(Atan, math::atan(x))

namespace gradient {

BARACUDA_GRADIENT(Asin, dy / math::sqrt((A(1) - x) * (A(1) + x)))
BARACUDA_GRADIENT(Acos, -dy / math::sqrt((A(1) - x) * (A(1) + x)))
BARACUDA_GRADIENT(Atan, (math::abs(x) > A(1e10) ? dy / x / x : dy / math::fma(x, x, A(1))))

}  // namespace gradient
}  // namespace baracuda
