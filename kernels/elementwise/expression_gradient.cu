// expression_gradient  the gradient of a formula's operand that was broadcast: y = the sum of its formula, whose text
//                      follows this file in the unit, over the axes along which it was. Schedule reduce over a map.
//
// What fixes the order of the sum stands in baracuda/reduce_axes.cuh.
#include <baracuda/reduce_axes.cuh>
#include "elementwise/expression.cuh"
#include "reduce/sums.cuh"
