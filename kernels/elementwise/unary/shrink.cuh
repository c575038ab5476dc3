#pragma once
// shrink  x moved towards 0, or replaced by 0, within k.a of it.
#include "elementwise/gradients.cuh"

namespace baracuda {

BARACUDA_UNARY(Hardshrink, (x >= -k.a && x <= k.a ? A(0) : x))
BARACUDA_UNARY(Softshrink, (x > k.a ? x - k.a : x < -k.a ? x + k.a : x * A(0)))

namespace gradient {

BARACUDA_GRADIENT(Hardshrink, (x >= -k.a && x <= k.a ? A(0) : dy))
BARACUDA_GRADIENT(Softshrink, (x >= -k.a && x <= k.a ? A(0) : dy))

}  // namespace gradient
}  // namespace baracuda
