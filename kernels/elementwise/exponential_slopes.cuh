#pragma once
// exponential_slopes  dy times an exponential that may be beyond the range while the product is not.
#include "elementwise/gradients.cuh"

namespace baracuda {

// exp(x), and 0.5 and 0.69 of it, are normal numbers for |x| <= far_exp; exp2(x) for |x| <= far_exp2.
template <class A> constexpr A far_exp = is_same<A, float> ? A(86) : A(706);

// y exp(rest), where `rest` is the part of an argument beyond `far`; f is exp or exp2. For f16 the float range
// suffices.
template <class T, class A, class F> BARACUDA_D A times_rest(A y, A rest, A far, const F& f) {
  if (!is_same<T, f16> && rest != A(0)) y = twice(y, f(A(0.5) * clamp(rest, A(-2) * far, A(2) * far)));
  return y;
}

}  // namespace baracuda
