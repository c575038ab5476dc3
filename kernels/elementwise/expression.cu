// expression  y0, y1, … = a formula of x0, x1, …, whose text follows this file in the unit: FormulaMap, an op of
//             `map_chunks` (baracuda/map.cuh). Schedule map; operands of several types, broadcast by strides of 0.
#include <baracuda/map.cuh>
#include "elementwise/expression.cuh"

namespace baracuda {

// Elements in a chunk of `bytes` of the widest operand, at least one.
constexpr int expression_width(int widest, int bytes) { return bytes > widest ? bytes / widest : 1; }

template <class Op, class L, class P> BARACUDA_D void expression(const P& p) { map_chunks<L, Op::operands>(p, Op(p)); }

}  // namespace baracuda
