// unary_gamma   y = f(x), f one functor of elementwise/gamma.cuh; schedule map.
#include "elementwise/gamma.cuh"
#include "elementwise/unary.cu"
