#pragma once
// extremes  the larger and the smaller of two numbers; where one is NaN, that, or the other.
#include "elementwise/binary_gradients.cuh"

namespace baracuda {

BARACUDA_CHOICE(Maximum, math::maximum(a, b))
BARACUDA_CHOICE(Minimum, math::minimum(a, b))

template <class T> struct Fmax : Operation<T, 0, true> {
  using A = compute_t<T>;
  static BARACUDA_D A value(A a, A b) {
    if constexpr (is_integer<A>) return math::maximum(a, b);
    else return math::fmax(a, b);
  }
};

template <class T> struct Fmin : Operation<T, 0, true> {
  using A = compute_t<T>;
  static BARACUDA_D A value(A a, A b) {
    if constexpr (is_integer<A>) return math::minimum(a, b);
    else return math::fmin(a, b);
  }
};

namespace partial {

BARACUDA_PARTIAL(Maximum, a == b ? dy / A(2) : b > a ? A(0) : dy, a == b ? dy / A(2) : a > b ? A(0) : dy)
BARACUDA_PARTIAL(Minimum, a == b ? dy / A(2) : b < a ? A(0) : dy, a == b ? dy / A(2) : a < b ? A(0) : dy)
BARACUDA_PARTIAL(Fmax, a >= b || b != b ? dy : A(0), a >= b || b != b ? A(0) : dy)
BARACUDA_PARTIAL(Fmin, a <= b || b != b ? dy : A(0), a <= b || b != b ? A(0) : dy)

}  // namespace partial
}  // namespace baracuda
