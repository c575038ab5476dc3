#pragma once
// sign  x, -x, |x| and the sign of x.
#include "elementwise/gradients.cuh"

namespace baracuda {

BARACUDA_UNARY(Positive, x)
BARACUDA_UNARY(Neg, negate(x))
BARACUDA_UNARY(Abs, magnitude(x))
BARACUDA_UNARY(Sign, static_cast<A>((x > A(0)) - (x < A(0))))  // NaN gives 0, as in PyTorch

namespace gradient {

BARACUDA_GRADIENT(Positive, dy)
BARACUDA_GRADIENT(Neg, -dy)
BARACUDA_GRADIENT(Abs, (x > A(0) ? dy : x < A(0) ? -dy : dy * A(0)))

}  // namespace gradient
}  // namespace baracuda
