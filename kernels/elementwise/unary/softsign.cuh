#pragma once
// softsign  x / (1 + |x|).
#include "elementwise/gradients.cuh"

namespace baracuda {

BARACUDA_UNARY(Softsign, x / (A(1) + math::abs(x)))

namespace gradient {

BARACUDA_GRADIENT(Softsign, dy / (A(1) + math::abs(x)) / (A(1) + math::abs(x)))

}  // namespace gradient
}  // namespace baracuda
