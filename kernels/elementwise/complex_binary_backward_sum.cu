// complex_binary_backward_sum  the gradient of a complex operand that was broadcast, summed over the axes it was broadcast
// along; schedule reduce over a map of dy, a and b.
//
// What fixes the order of the sum stands in baracuda/reduce_axes.cuh: the number of its elements, and their size.
#include <baracuda/reduce_axes.cuh>
#include "elementwise/complex_binary.cuh"
#include "reduce/sums.cuh"

namespace baracuda {

// What is summed: da, or db where `second`.
template <template <class> class F, class T> struct ComplexSummand {
  using Value = T;
  using G = F<part_t<T>>;
  const ComplexOperands<T> x;
  const bool second;
  template <class P> BARACUDA_D explicit ComplexSummand(const P& p) : x(p, p.number_place), second(p.second != 0) {}
  template <class P> static BARACUDA_D void operands(const P& p, const void* (&at)[3]) {
    at[0] = p.dy, at[1] = p.left, at[2] = p.right;
  }
  BARACUDA_D Value operator()(T dy, T left, T right) const {
    const T a = x.left(left), b = x.right(right);
    return second ? G::db(dy, a, b) : G::da(dy, a, b);
  }
};

}  // namespace baracuda
