// unary_backward_bessel   dx = dy f'(x), f' one functor of elementwise/bessel_gradients.cuh or airy.cuh; schedule map.
#include "elementwise/bessel_gradients.cuh"
#include "elementwise/unary_backward.cu"
