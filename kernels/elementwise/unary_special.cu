// unary_special   y = f(x), f one functor of elementwise/special.cuh; schedule map.
#include "elementwise/special.cuh"
#include "elementwise/unary.cu"
