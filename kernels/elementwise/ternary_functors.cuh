#pragma once
// ternary_functors  what the functions of three operands share. Each has a file (elementwise/ternary/) with its gradients,
// and a unit includes the file of its kind.
#include <baracuda/complex.cuh>
#include "elementwise/functors.cuh"

namespace baracuda {

// More special than `plus` of functors.cuh and of reduce/sums.cuh, which are equally good where both are included.
template <class R> BARACUDA_D complex<R> plus(complex<R> a, complex<R> b) { return a + b; }

// A functor computes in `Wide`; its first operand holds elements of `First`, the others and y elements of `Element`.
namespace ternary_kinds {

#define BARACUDA_TERNARY(Name, formula)                                                                   \
  template <class T> struct Name {                                                                        \
    using Element = T;                                                                                    \
    using First = T;                                                                                      \
    using Wide = compute_t<T>;                                                                            \
    static BARACUDA_D Wide value(Wide a, Wide b, Wide c, [[maybe_unused]] Wide scale) { return formula; } \
  };

// m 2^e + a. Where m 2^e alone would overflow, both are taken smaller first: a may be of the other sign.
template <class A> BARACUDA_D A scaled_sum(A m, int e, A a) {
  const int down = e > 0 ? 4 : 0;
  return math::ldexp(math::ldexp(m, e - down) + math::ldexp(a, -down), down);
}

}  // namespace ternary_kinds
}  // namespace baracuda
