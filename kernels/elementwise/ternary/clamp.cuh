#pragma once
// clamp  a between b and c.
#include "elementwise/ternary_gradients.cuh"

namespace baracuda {
namespace ternary_kinds {

BARACUDA_TERNARY(Clamp, math::minimum(math::maximum(a, b), c))

}  // namespace ternary_kinds

namespace ternary_partials {

// Between the bounds, ends included; a lower bound above the upper one has no gradient, as in PyTorch.
BARACUDA_PARTIALS(Clamp, (a >= b && a <= c ? dy : A(0)), (b < c && a < b ? dy : A(0)), (a > c || c < b ? dy : A(0)))

}  // namespace ternary_partials
}  // namespace baracuda
