// ternary_backward_sum  the gradient of an operand that was broadcast: the sum of dy ∂f/∂a, a functor of a
// kind (elementwise/ternary/), over the axes it was broadcast along; schedule reduce over a map of all operands.
//
// What fixes the order of the sum stands in baracuda/reduce_axes.cuh: the number of its elements, and their size.
#include <baracuda/reduce_axes.cuh>
#include "elementwise/ternary_gradients.cuh"
#include "reduce/sums.cuh"

namespace baracuda {

// What is summed: the gradient of operand `which`. An operand that it does not read is dy in its place.
template <class G, class T> struct TernarySummand {
  using Value = acc_t<T>;
  using First = typename G::Forward::First;
  TernaryNumbers<Value, TernaryBackwardSumParams> numbers;
  int which;
  BARACUDA_D explicit TernarySummand(const TernaryBackwardSumParams& p) : numbers(p), which(p.which) {}
  static BARACUDA_D void operands(const TernaryBackwardSumParams& p, const void* (&at)[4]) {
    at[0] = p.dy, at[1] = p.a, at[2] = p.b, at[3] = p.c;
  }
  BARACUDA_D Value operator()(T dy, First a, T b, T c) const {
    const Value d = to_acc(dy), x = cast<Value>(a), y = to_acc(b), z = to_acc(c);
    if (which == 0) return numbers.template gradient<G, 0>(d, x, y, z);
    return which == 1 ? numbers.template gradient<G, 1>(d, x, y, z) : numbers.template gradient<G, 2>(d, x, y, z);
  }
};

}  // namespace baracuda
