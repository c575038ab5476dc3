// unary_integral   y = f(x), f one functor of elementwise/integrals.cuh; schedule map.
#include "elementwise/integrals.cuh"
#include "elementwise/unary.cu"
