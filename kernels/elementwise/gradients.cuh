#pragma once
// gradients  what the gradients of unary kinds share: gradient::F<T>::value(dy, x, k) = dy f'(x) stands beside F, in
// elementwise/unary/.
//
// f'(x) may leave the range of A while its product with dy does not. So factors are applied one by one, in an order in
// which nothing overflows unless the result does, and nothing becomes subnormal, and so loses digits, unless the result
// is: shrinking factors as two square roots, growing ones as one number near the end of the range, which brings dy well
// into it, and then the rest. Outside the domain of f, where f is NaN, so is the gradient.
#include "elementwise/functors.cuh"

namespace baracuda {

template <class A> BARACUDA_D A twice(A y, A h) { return y * h * h; }

template <class A> BARACUDA_D A where_defined(bool inside, A y) { return inside ? y : numeric<A>::nan(); }

#define BARACUDA_GRADIENT(Name, formula)                                                                    \
  template <class T> struct Name {                                                                          \
    using A = acc_t<T>;                                                                                     \
    static BARACUDA_D A value(A dy, [[maybe_unused]] A x, [[maybe_unused]] const Coefficients<A>& k = {}) { \
      return formula;                                                                                       \
    }                                                                                                       \
  };

}  // namespace baracuda
