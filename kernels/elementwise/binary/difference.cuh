#pragma once
// difference  (a - b)^2 and |a - b|.
#include "elementwise/binary_gradients.cuh"

namespace baracuda {

template <class T> struct SquaredDifference : Operation<T> {
  using A = compute_t<T>;
  static BARACUDA_D A value(A a, A b) {
    const A d = plus(a, negate(b));
    return times(d, d);
  }
};

template <class T> struct AbsoluteDifference : Operation<T> {
  using A = compute_t<T>;
  static BARACUDA_D A value(A a, A b) {
    if constexpr (is_integer<A>) return a < b ? plus(b, negate(a)) : plus(a, negate(b));
    else return magnitude(a - b);
  }
};

namespace partial {

// 2 dy (a - b); a difference of doubles that overflows is taken of halves.
template <class T, class A> BARACUDA_D A twice_difference(A dy, A a, A b) {
  if constexpr (!is_same<T, double>) return static_cast<A>(2.0 * dy * (static_cast<double>(a) - b));
  const A d = a - b;
  const bool halves = math::isinf(d) && math::isfinite(a) && math::isfinite(b);
  return narrow<A>(Wide<T>(dy) * Wide<T>(halves ? A(0.5) * a - A(0.5) * b : d) * Wide<T>(halves ? A(4) : A(2)));
}

template <class A> BARACUDA_D A signed_by(A dy, A a, A b) { return a > b ? dy : a < b ? -dy : dy * A(0); }

BARACUDA_PARTIAL(SquaredDifference, (twice_difference<T>(dy, a, b)), (twice_difference<T>(dy, b, a)))
BARACUDA_PARTIAL(AbsoluteDifference, signed_by(dy, a, b), signed_by(dy, b, a))

}  // namespace partial
}  // namespace baracuda
