#pragma once
// signs  a with the sign of b, and the step at 0.
#include "elementwise/binary_gradients.cuh"

namespace baracuda {

BARACUDA_CHOICE(Copysign, math::copysign(a, b))
BARACUDA_CHOICE(Heaviside, a == A(0) ? b : static_cast<A>(a > A(0)))  // NaN gives 0, as in PyTorch

namespace partial {

BARACUDA_PARTIAL(Copysign, a == A(0) ? A(0) : dy * (math::copysign(a, b) / a), A(0))

}  // namespace partial
}  // namespace baracuda
