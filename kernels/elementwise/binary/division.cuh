#pragma once
// division  quotients rounded down or to zero, and what they leave.
#include "elementwise/binary_gradients.cuh"

namespace baracuda {

// floor(a / b) and what it leaves, which has the sign of b, as a 0 has. Integers: both are 0 where b is 0; the quotient
// of the lowest integer and -1 wraps.
template <class A> struct Division {
  A quotient, remainder;
};

// The whole number (a - r) / b, r what fmod leaves of a, and `more`, rounded once. a - r is that number times b, which may
// have more digits than A: it is taken as the sum of two, and the quotient of the first makes good what it lacks. A small
// b is scaled, so that nothing on the way is subnormal. 0 takes its sign from a / b.
template <class A> BARACUDA_D A settled_quotient(A a, A b, A r, A more) {
  const A near = a / b;
  if (b == A(0) || (math::isinf(near) && math::isfinite(a))) return near;
  constexpr A large = sizeof(A) == 4 ? A(18446744073709551616.0) : A(1.3407807929942597e154);  // 2^64, 2^512
  if (magnitude(b) < A(1) / large) a *= large, b *= large, r *= large;
  const A whole = a - r, lacks = (a - whole) - r;
  A q = more;
  if (whole != A(0)) {
    const A first = whole / b;
    q = first + ((math::fma(-first, b, whole) + lacks) / b + more);
  }
  return q == A(0) ? math::copysign(A(0), near) : q;
}

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
    return {settled_quotient(a, b, r, down ? A(-1) : A(0)), down ? r + b : r == A(0) ? math::copysign(A(0), b) : r};
  }
}

BARACUDA_BINARY(FloorDivide, floor_division(a, b).quotient)
BARACUDA_BINARY(Remainder, floor_division(a, b).remainder)

template <class A> BARACUDA_D A trunc_quotient(A a, A b) {
  if constexpr (is_integer<A>) {
    if constexpr (is_signed_int<A>) {
      if (b == A(-1)) return negate(a);
    }
    return b == A(0) ? A(0) : a / b;
  } else {
    if (math::isinf(a)) return a / b;
    return settled_quotient(a, b, math::fmod(a, b), A(0));
  }
}

BARACUDA_BINARY(TruncDivide, trunc_quotient(a, b))

template <class T> struct Fmod : Operation<T> {
  using A = compute_t<T>;
  static BARACUDA_D A value(A a, A b) {
    if constexpr (!is_integer<A>) return math::fmod(a, b);
    else if constexpr (is_signed_int<A>) return b == A(0) || b == A(-1) ? A(0) : a % b;
    else return b == A(0) ? A(0) : a % b;
  }
};

namespace partial {

// The quotient of doubles rounded down, or to zero. Not inlined: a remainder is much code, and there is one for each
// element of a chunk.
static __device__ __noinline__ double whole_quotient(double a, double b, bool down) {
  return down ? floor_division(a, b).quotient : trunc_quotient(a, b);
}

// -dy times that quotient. One that has more than 53 bits is no other than a / b.
template <class T, class A> BARACUDA_D A times_quotient(A dy, A a, A b, bool down) {
  if constexpr (!is_same<T, double>) {
    return static_cast<A>(-static_cast<double>(dy) * whole_quotient(a, b, down));
  } else {
    const bool large = math::isfinite(a) && b != A(0) && magnitude(a / b) > A(9007199254740992.0);
    return narrow<A>(-Wide<T>(dy) * (large ? Wide<T>(a) / Wide<T>(b) : Wide<T>(whole_quotient(a, b, down))));
  }
}

BARACUDA_PARTIAL(Remainder, dy, times_quotient<T>(dy, a, b, true))
BARACUDA_PARTIAL(Fmod, dy, times_quotient<T>(dy, a, b, false))

}  // namespace partial
}  // namespace baracuda
