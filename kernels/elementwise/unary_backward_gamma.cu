// unary_backward_gamma   dx = dy f'(x), f' one functor of elementwise/gamma_gradients.cuh; schedule map.
#include "elementwise/gamma_gradients.cuh"
#include "elementwise/unary_backward.cu"
