#pragma once
// binary     the binary kinds: F<T>::value(a, b) for elements T, computed in A = compute_t<T>.
#include <baracuda/map.cuh>
#include <baracuda/math.cuh>
#include "elementwise/functors.cuh"

namespace baracuda {

#define BARACUDA_BINARY(Name, formula)                      \
  template <class T> struct Name {                          \
    using A = compute_t<T>;                                 \
    static BARACUDA_D A value(A a, A b) { return formula; } \
  };

BARACUDA_BINARY(Add, plus(a, b))
BARACUDA_BINARY(Sub, plus(a, negate(b)))
BARACUDA_BINARY(Mul, times(a, b))
BARACUDA_BINARY(Div, a / b)
BARACUDA_BINARY(Pow, math::pow(a, b))
BARACUDA_BINARY(Maximum, math::maximum(a, b))
BARACUDA_BINARY(Minimum, math::minimum(a, b))
BARACUDA_BINARY(Fmax, math::fmax(a, b))
BARACUDA_BINARY(Fmin, math::fmin(a, b))
BARACUDA_BINARY(Atan2, math::atan2(a, b))
BARACUDA_BINARY(Hypot, math::hypot(a, b))
BARACUDA_BINARY(Copysign, math::copysign(a, b))

// The remainder with the sign of a, and floor(a / b) computed from it. Integers: both are 0 where b is 0; the quotient
// of the lowest integer and -1 wraps.
template <class A> struct Division {
  A quotient, remainder;
};
template <class A> BARACUDA_D Division<A> floor_division(A a, A b) {
  if constexpr (is_integer<A>) {
    if (b == A(0)) return {A(0), A(0)};
    if constexpr (is_signed_int<A>) {
      if (b == A(-1)) return {negate(a), A(0)};
    }
    const A q = a / b, r = a - q * b;
    const bool down = r != A(0) && (r < A(0)) != (b < A(0));
    return {down ? q - A(1) : q, down ? r + b : r};
  } else {
    const A r = math::fmod(a, b);
    const bool down = r != A(0) && (r < A(0)) != (b < A(0));
    A q = (a - r) / b;  // nearly an integer: fmod is exact
    if (down) q -= A(1);
    const A whole = math::floor(q);
    if (b == A(0)) q = a / b;
    else if (q == A(0)) q = math::copysign(A(0), a / b);
    else q = q - whole > A(0.5) ? whole + A(1) : whole;
    return {q, down ? r + b : r};
  }
}
BARACUDA_BINARY(FloorDivide, floor_division(a, b).quotient)
BARACUDA_BINARY(Remainder, floor_division(a, b).remainder)

template <class T> struct Fmod {
  using A = compute_t<T>;
  static BARACUDA_D A value(A a, A b) {
    if constexpr (!is_integer<A>) return math::fmod(a, b);
    else if constexpr (is_signed_int<A>) return b == A(0) || b == A(-1) ? A(0) : a % b;
    else return b == A(0) ? A(0) : a % b;
  }
};

#undef BARACUDA_BINARY

}  // namespace baracuda
