// reduce     y[kept] = finish(merge over the reduced axes of x), K one functor of reduce/kinds.cuh; schedule reduce.
//
// What fixes the order of every sum stands in baracuda/reduce_axes.cuh: the number of reduced elements, and their size.
#include <baracuda/reduce_axes.cuh>
#include "reduce/kinds.cuh"
