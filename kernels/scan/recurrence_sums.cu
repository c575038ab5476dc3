// recurrence_sums  da = the sum, over the axes along which a is broadcast, of what every element of h hands back to it,
//                  which lies in the workspace in acc_t<T>; schedule reduce.
//
// What fixes the order of the sum stands in baracuda/reduce_axes.cuh: the number of summed elements, and their size.
#include <baracuda/reduce_axes.cuh>
#include "reduce/sums.cuh"

namespace baracuda {

template <class A> struct Terms {
  using Value = A;
  BARACUDA_D explicit Terms(const RecurrenceSumParams&) {}
  static BARACUDA_D void operands(const RecurrenceSumParams& p, const void* (&x)[1]) { x[0] = p.terms; }
  BARACUDA_D Value operator()(A x) const { return x; }
};

}  // namespace baracuda
