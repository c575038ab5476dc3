// unary_backward_special   dx = dy f'(x), f' one functor of elementwise/special_gradients.cuh; schedule map.
#include "elementwise/special_gradients.cuh"
#include "elementwise/unary_backward.cu"
