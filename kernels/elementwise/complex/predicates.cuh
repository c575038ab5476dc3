#pragma once
// predicates   what is asked of the parts of z.
#include "elementwise/complex_functors.cuh"

namespace baracuda {
namespace of_complex {

BARACUDA_COMPLEX(Isnan, math::isnan(z))
BARACUDA_COMPLEX(Isinf, math::isinf(z))
BARACUDA_COMPLEX(Isfinite, math::isfinite(z))
BARACUDA_COMPLEX(Isreal, z.im == R(0))
BARACUDA_COMPLEX(Iscomplex, z.im != R(0))

}  // namespace of_complex
}  // namespace baracuda
