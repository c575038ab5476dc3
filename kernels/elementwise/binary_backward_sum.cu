// binary_backward_sum  the gradient of an operand that was broadcast: the sum of dy ∂f/∂a, a functor of a kind
// (elementwise/binary/), over the axes it was broadcast along; schedule reduce over a map of dy, a and b.
//
// What fixes the order of the sum stands in baracuda/reduce_axes.cuh: the number of its elements, and their size.
#include <baracuda/reduce_axes.cuh>
#include "elementwise/binary_gradients.cuh"
#include "elementwise/binary_number.cuh"
#include "reduce/sums.cuh"

namespace baracuda {

// What is summed: da, or db where `second`.
template <class F, class G, class T> struct Summand {
  using Value = acc_t<T>;
  const Operands<F, T, BinaryBackwardSumParams> x;
  const bool second;
  BARACUDA_D explicit Summand(const BinaryBackwardSumParams& p) : x(p), second(p.second != 0) {}
  static BARACUDA_D void operands(const BinaryBackwardSumParams& p, const void* (&at)[3]) {
    at[0] = p.dy, at[1] = p.left, at[2] = p.right;
  }
  BARACUDA_D Value operator()(T dy, T left, T right) const {
    const Value d = to_acc(dy), a = x.left(to_acc(left)), b = x.right(to_acc(right));
    return second ? G::db(d, a, b, x.alpha) : G::da(d, a, b, x.alpha);
  }
};

}  // namespace baracuda
