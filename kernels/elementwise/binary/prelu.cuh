#pragma once
// prelu  a above 0, a b below.
#include "elementwise/binary_gradients.cuh"

namespace baracuda {

BARACUDA_BINARY(Prelu, a > A(0) ? a : a * b)

namespace partial {

BARACUDA_PARTIAL(Prelu, a > A(0) ? dy : dy * b, a > A(0) ? A(0) : dy * a)

}  // namespace partial
}  // namespace baracuda
