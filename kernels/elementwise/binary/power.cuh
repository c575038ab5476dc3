#pragma once
// power  a to the power of b.
#include "elementwise/binary_gradients.cuh"

namespace baracuda {

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

namespace partial {

// a^b, of which double has the fourth power of a root, and the sign of the power itself.
BARACUDA_D double wide_pow(float a, float b) { return math::pow(static_cast<double>(a), static_cast<double>(b)); }
BARACUDA_D Scaled wide_pow(double a, double b) {
  const double power = math::pow(a, b);
  if (power != power) return {power, 0};
  const Scaled root(math::pow(magnitude(a), 0.25 * b)), square = root * root;
  const Scaled size = square * square;
  return {math::copysign(size.m, power), size.e};
}

// a^(b - 1) as a^b / a, since b - 1 may be rounded, and a^b be no number where a^(b - 1) then is one. Of 0 and infinity
// it is the power itself; from 2^53 on b is even, and b - 1 as good as b, but odd.
template <class A> BARACUDA_D Wide<A> wide_pow_below(A a, A b) {
  if (a != A(0) && !math::isinf(a)) return wide_pow(a, b) / Wide<A>(a);
  if (magnitude(b) < A(9007199254740992.0)) return math::pow(static_cast<double>(a), static_cast<double>(b) - 1.0);
  return math::copysign(math::pow(magnitude(static_cast<double>(a)), static_cast<double>(b)), static_cast<double>(a));
}

BARACUDA_PARTIAL(Pow, (b == A(0) ? A(0) : narrow<A>(W(dy) * W(b) * wide_pow_below(a, b))),
                 (a == A(0) && b >= A(0) ? A(0) : narrow<A>(W(dy) * wide_pow(a, b) * W(math::log(a)))))

}  // namespace partial
}  // namespace baracuda
