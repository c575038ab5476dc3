// expression_reduce  y[kept] = a formula of (the merged elements, over the reduced axes, of a formula of x0, x1, …).
//                    Schedule reduce over a map; the texts of both formulas follow this file in the unit.
//
// What fixes the order of sums stands in baracuda/reduce_axes.cuh.
#include <baracuda/reduce_axes.cuh>
#include "elementwise/expression.cuh"
