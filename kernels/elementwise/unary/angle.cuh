#pragma once
// angle  degrees as radians, and radians as degrees.
#include "elementwise/gradients.cuh"

namespace baracuda {

BARACUDA_UNARY(Deg2rad, (x * A(0.017453292519943295)))
BARACUDA_UNARY(Rad2deg, (x * A(57.29577951308232)))

namespace gradient {

BARACUDA_GRADIENT(Deg2rad, (dy * A(0.017453292519943295)))
BARACUDA_GRADIENT(Rad2deg, (dy * A(57.29577951308232)))

}  // namespace gradient
}  // namespace baracuda
