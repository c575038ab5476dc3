// unary_bessel   y = f(x), f one functor of elementwise/bessel.cuh or airy.cuh; schedule map.
#include "elementwise/bessel.cuh"
#include "elementwise/unary.cu"
