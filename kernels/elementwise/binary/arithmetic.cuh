#pragma once
// arithmetic  sums, differences, products and quotients.
#include "elementwise/binary_gradients.cuh"

namespace baracuda {

BARACUDA_BINARY(Add, plus(a, b))

template <class T> struct AddScaled : Operation<T, 1> {  // a + alpha b, rounded once
  using A = compute_t<T>;
  static BARACUDA_D A value(A a, A b, A alpha) {
    if constexpr (is_integer<A>) return plus(a, times(alpha, b));
    else return math::fma(alpha, b, a);
  }
};

BARACUDA_BINARY(Sub, plus(a, negate(b)))
BARACUDA_BINARY(Mul, times(a, b))
BARACUDA_BINARY(Div, a / b)

namespace partial {

BARACUDA_PARTIAL(Add, dy, dy)
BARACUDA_PARTIAL(AddScaled, dy, (dy * alpha))
BARACUDA_PARTIAL(Sub, dy, -dy)
BARACUDA_PARTIAL(Mul, (dy * b), (dy * a))
BARACUDA_PARTIAL(Div, dy / b, narrow<A>(-W(dy) * W(a) / W(b) / W(b)))

}  // namespace partial
}  // namespace baracuda
