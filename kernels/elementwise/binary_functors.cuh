#pragma once
// binary_functors  the binary kinds: F<T>::value(a, b, coefficients…) for elements T, computed in A = compute_t<T>.
//
// Result is the element of y: T, or bool for comparisons and logic. Definitions are PyTorch's; integers wrap. IN_ELEMENT:
// a number in the place of an operand is rounded to T, so that what compares with x is a number that x can hold.
#include <baracuda/map.cuh>
#include <baracuda/math.cuh>
#include "elementwise/functors.cuh"

namespace baracuda {

template <class T, int COEFFICIENTS = 0, bool IN_ELEMENT = false> struct Operation {
  using A = compute_t<T>;
  using Result = T;
  static constexpr int coefficients = COEFFICIENTS;
  static constexpr bool in_element = IN_ELEMENT;
};
template <class T, int COEFFICIENTS = 0> struct Relation : Operation<T, COEFFICIENTS, true> {
  using Result = bool;
};

#define BARACUDA_BINARY(Name, formula)                      \
  template <class T> struct Name : Operation<T> {           \
    using A = compute_t<T>;                                 \
    static BARACUDA_D A value(A a, A b) { return formula; } \
  };
#define BARACUDA_CHOICE(Name, formula)                      \
  template <class T> struct Name : Operation<T, 0, true> {  \
    using A = compute_t<T>;                                 \
    static BARACUDA_D A value(A a, A b) { return formula; } \
  };
#define BARACUDA_RELATION(Name, formula)                       \
  template <class T> struct Name : Relation<T> {               \
    using A = compute_t<T>;                                    \
    static BARACUDA_D bool value(A a, A b) { return formula; } \
  };

// The type of integers modulo 2^n that A stands for, and |x| in it, right for the lowest integer too.
template <class A> using modular = conditional<sizeof(A) == 8, u64, u32>;
template <class A> BARACUDA_D modular<A> size_of(A x) {
  const modular<A> u = static_cast<modular<A>>(x);
  if constexpr (is_signed_int<A>) return x < A(0) ? modular<A>(0) - u : u;
  else return u;
}

// ---- arithmetic -----------------------------------------------------------------------------------------------------

BARACUDA_BINARY(Add, plus(a, b))
BARACUDA_BINARY(Sub, plus(a, negate(b)))
BARACUDA_BINARY(Mul, times(a, b))
BARACUDA_BINARY(Div, a / b)
template <class T> struct AddScaled : Operation<T, 1> {  // a + alpha b, rounded once
  using A = compute_t<T>;
  static BARACUDA_D A value(A a, A b, A alpha) {
    if constexpr (is_integer<A>) return plus(a, times(alpha, b));
    else return math::fma(alpha, b, a);
  }
};
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

// ---- powers, exponentials, angles -----------------------------------------------------------------------------------

// Squares and multiplies modulo 2^n. A negative exponent leaves what is whole of 1 / aⁿ.
template <class A> BARACUDA_D A whole_power(A a, A b) {
  if constexpr (is_signed_int<A>) {
    if (b < A(0)) return a == A(1) ? A(1) : a == A(-1) ? (b & A(1) ? A(-1) : A(1)) : A(0);
  }
  using U = modular<A>;
  U power = 1, factor = static_cast<U>(a);
#pragma unroll 1
  for (U rest = static_cast<U>(b); rest != 0; rest >>= 1) {
    if (rest & 1) power *= factor;
    factor *= factor;
  }
  return static_cast<A>(power);
}
template <class T> struct Pow : Operation<T> {
  using A = compute_t<T>;
  static BARACUDA_D A value(A a, A b) {
    if constexpr (is_integer<A>) return whole_power(a, b);
    else return math::pow(a, b);
  }
};

// a 2^b: exactly scaled by the whole part of b. What multiplies the rest is neither subnormal nor near the largest.
template <class A> BARACUDA_D A scaled_by(A a, A b) {
  if (b != b) return b;
  const A near = clamp(b, A(-5000), A(5000)), whole = math::rint(near);
  const bool small = magnitude(a) < A(1);
  const A part = a * (small ? A(1ull << 60) : A(0.5)) * math::exp2(near - whole);
  return math::ldexp(part, static_cast<int>(whole) - (small ? 60 : -1));
}
BARACUDA_BINARY(Ldexp, scaled_by(a, b))

// max + log(1 + exp(-|a - b|)); of two equal infinities the same, where their difference would be no number.
template <class T> struct Logaddexp : Operation<T> {
  using A = compute_t<T>;
  static BARACUDA_D A value(A a, A b) {
    const A top = math::maximum(a, b);
    return math::isinf(top) ? top : top + math::log1p(math::exp(-magnitude(a - b)));
  }
};
template <class T> struct Logaddexp2 : Operation<T> {
  using A = compute_t<T>;
  static BARACUDA_D A value(A a, A b) {
    const A top = math::maximum(a, b);
    return math::isinf(top) ? top : math::fma(math::log1p(math::exp2(-magnitude(a - b))), A(1.4426950408889634), top);
  }
};

// a log, and 0 where a is 0 and b is a number.
template <class A> BARACUDA_D A times_log(A a, A b, A log) { return b != b ? b : a == A(0) ? A(0) : a * log; }
BARACUDA_BINARY(Xlogy, times_log(a, b, math::log(b)))
BARACUDA_BINARY(Xlog1py, times_log(a, b, math::log1p(b)))
BARACUDA_BINARY(Atan2, math::atan2(a, b))
BARACUDA_BINARY(Hypot, math::hypot(a, b))

// ---- choices and neighbours -----------------------------------------------------------------------------------------

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
BARACUDA_CHOICE(Copysign, math::copysign(a, b))
BARACUDA_CHOICE(Heaviside, a == A(0) ? b : static_cast<A>(a > A(0)))  // NaN gives 0, as in PyTorch
BARACUDA_BINARY(Prelu, a > A(0) ? a : a * b)

// The neighbour of a in T, towards b: the code of |a| is one more or one less.
template <class T> struct Nextafter : Operation<T, 0, true> {
  using A = compute_t<T>;
  static BARACUDA_D A value(A a, A b) {
    if constexpr (!is_half<T>) {
      return math::nextafter(a, b);
    } else {
      if (a != a || b != b) return a + b;
      if (a == b) return b;
      union {
        T value;
        u16 code;
      } x;
      x.value = cast<T>(a);
      if (a == A(0)) x.code = b < A(0) ? 0x8001 : 0x0001;
      else x.code += (a < b) == (a > A(0)) ? 1 : -1;
      return cast<A>(x.value);
    }
  }
};

// ---- integers -------------------------------------------------------------------------------------------------------

template <class U> BARACUDA_D U common_divisor(U a, U b) {
#pragma unroll 1
  while (b != 0) {
    const U rest = a % b;
    a = b, b = rest;
  }
  return a;
}
// |a b| / gcd, in an order that wraps no sooner than the result.
template <class A> BARACUDA_D modular<A> common_multiple(A a, A b) {
  const modular<A> x = size_of(a), y = size_of(b), divisor = common_divisor(x, y);
  return divisor == 0 ? divisor : x / divisor * y;
}
BARACUDA_BINARY(Gcd, static_cast<A>(common_divisor(size_of(a), size_of(b))))
BARACUDA_BINARY(Lcm, static_cast<A>(common_multiple(a, b)))
// The upper half of the product.
template <class T> struct Mulhi : Operation<T> {
  using A = compute_t<T>;
  static BARACUDA_D A value(A a, A b) {
    if constexpr (is_same<A, i64>) return __mul64hi(a, b);
    else if constexpr (is_same<A, u64>) return __umul64hi(a, b);
    else return static_cast<A>(static_cast<acc_t<T>>(a) * static_cast<acc_t<T>>(b) >> (8 * sizeof(T)));
  }
};
BARACUDA_BINARY(BitwiseAnd, a& b)
BARACUDA_BINARY(BitwiseOr, a | b)
BARACUDA_BINARY(BitwiseXor, a ^ b)

// Shifts by less than 0 or by the width of T and more leave nothing; to the right, the sign in all bits.
template <class T> struct BitwiseLeftShift : Operation<T> {
  using A = compute_t<T>;
  static BARACUDA_D A value(A a, A b) {
    constexpr A bits = 8 * sizeof(T);
    return b < A(0) || b >= bits ? A(0) : static_cast<A>(static_cast<modular<A>>(a) << b);
  }
};
template <class T> struct BitwiseRightShift : Operation<T> {
  using A = compute_t<T>;
  static BARACUDA_D A value(A a, A b) {
    constexpr A bits = 8 * sizeof(T);
    if (b < A(0) || b >= bits) return a < A(0) ? static_cast<A>(-1) : A(0);
    return a >> b;
  }
};

// As of T without a sign: 0 comes in.
template <class T> struct ShiftRightLogical : Operation<T> {
  using A = compute_t<T>;
  static BARACUDA_D A value(A a, A b) {
    constexpr A bits = 8 * sizeof(T);
    return b < A(0) || b >= bits ? A(0) : static_cast<A>(bits_of<T>(a) >> b);
  }
};

// ---- comparisons and logic ------------------------------------------------------------------------------------------

BARACUDA_RELATION(Eq, a == b)
BARACUDA_RELATION(Ne, a != b)
BARACUDA_RELATION(Lt, a < b)
BARACUDA_RELATION(Le, a <= b)
BARACUDA_RELATION(Gt, a > b)
BARACUDA_RELATION(Ge, a >= b)
BARACUDA_RELATION(LogicalAnd, a != A(0) && b != A(0))
BARACUDA_RELATION(LogicalOr, a != A(0) || b != A(0))
BARACUDA_RELATION(LogicalXor, (a != A(0)) != (b != A(0)))

// a = b, or |a - b| <= atol + rtol |b| where that is finite; in double, whatever the element.
template <class T> struct Isclose : Relation<T, 3> {
  using A = compute_t<T>;
  static BARACUDA_D bool value(A a, A b, double rtol, double atol, bool equal_nan) {
    if (a == b) return true;
    if constexpr (!is_integer<A>) {
      if (a != a && b != b) return equal_nan;
    }
    if (rtol == 0 && atol == 0) return false;  // integers may differ that are one double
    const double x = static_cast<double>(a), y = static_cast<double>(b), error = magnitude(x - y);
    return math::isfinite(error) && error <= atol + magnitude(rtol * y);
  }
};

#undef BARACUDA_BINARY
#undef BARACUDA_CHOICE
#undef BARACUDA_RELATION

}  // namespace baracuda
