// unary_backward_integral   dx = dy f'(x), f' one functor of elementwise/integrals_gradients.cuh; schedule map.
#include "elementwise/integrals_gradients.cuh"
#include "elementwise/unary_backward.cu"
