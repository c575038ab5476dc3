#pragma once
// comparison  comparisons.
#include "elementwise/binary_functors.cuh"

namespace baracuda {

BARACUDA_RELATION(Eq, a == b)
BARACUDA_RELATION(Ne, a != b)
BARACUDA_RELATION(Lt, a < b)
BARACUDA_RELATION(Le, a <= b)
BARACUDA_RELATION(Gt, a > b)
BARACUDA_RELATION(Ge, a >= b)

}  // namespace baracuda
