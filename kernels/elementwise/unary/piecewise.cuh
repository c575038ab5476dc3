#pragma once
// piecewise  x within bounds, above a threshold, or less steep below 0. Slopes at the kinks are PyTorch's.
#include "elementwise/gradients.cuh"

namespace baracuda {

BARACUDA_UNARY(Relu6, clamp(x, A(0), A(6)))
BARACUDA_UNARY(Hardtanh, clamp(x, k.a, k.b))
BARACUDA_UNARY(Threshold, (x <= k.a ? k.b : x))
BARACUDA_UNARY(LeakyRelu, (x > A(0) ? x : x * k.a))

namespace gradient {

BARACUDA_GRADIENT(Relu6, (x <= A(0) || x >= A(6) ? A(0) : dy))
BARACUDA_GRADIENT(Hardtanh, (x <= k.a || x >= k.b ? A(0) : dy))
BARACUDA_GRADIENT(Threshold, (x <= k.a ? A(0) : dy))
BARACUDA_GRADIENT(LeakyRelu, (x > A(0) ? dy : dy * k.a))

}  // namespace gradient
}  // namespace baracuda
