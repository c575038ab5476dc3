// trace      y[kept] = the sum of the elements of a diagonal; schedule reduce.
//
// What fixes the order of the sum stands in baracuda/reduce_axes.cuh: the number of elements, and their size.
#include <baracuda/reduce_axes.cuh>
#include "reduce/sums.cuh"
