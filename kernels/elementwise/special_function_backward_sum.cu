// special_function_backward_sum   the gradient of an operand that was broadcast: the sum of dy ∂f/∂a, a functor of
// elementwise/special_partials.cuh, over the axes it was broadcast along; schedule reduce over a map of all operands.
//
// What fixes the order of the sum stands in baracuda/reduce_axes.cuh: the number of its elements, and their size.
#include <baracuda/reduce_axes.cuh>
#include "elementwise/special_partials.cuh"
#include "reduce/kinds.cuh"

namespace baracuda {

// What is summed: the gradient of operand `which`. An operand that it does not read is dy in its place.
template <class G, class T> struct SpecialSummand {
  using Value = acc_t<T>;
  SpecialNumber<Value, SpecialFunctionBackwardSumParams> number;
  int which;
  BARACUDA_D explicit SpecialSummand(const SpecialFunctionBackwardSumParams& p) : number(p), which(p.which) {}
  static BARACUDA_D void operands(const SpecialFunctionBackwardSumParams& p, const void* (&at)[4]) {
    at[0] = p.dy, at[1] = p.a, at[2] = p.b, at[3] = p.c;
  }
  BARACUDA_D Value operator()(T dy, T a, T b, T c) const {
    const Value d = to_acc(dy), x = to_acc(a), y = number(to_acc(b)), z = to_acc(c);
    if (which == 0) return G::template of<0>(d, x, y, z);
    return which == 1 ? G::template of<1>(d, x, y, z) : G::template of<2>(d, x, y, z);
  }
};

}  // namespace baracuda
