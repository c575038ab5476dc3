#pragma once
// logic  and, or, exclusive or of truth values.
#include "elementwise/binary_functors.cuh"

namespace baracuda {

BARACUDA_RELATION(LogicalAnd, a != A(0) && b != A(0))
BARACUDA_RELATION(LogicalOr, a != A(0) || b != A(0))
BARACUDA_RELATION(LogicalXor, (a != A(0)) != (b != A(0)))

}  // namespace baracuda
