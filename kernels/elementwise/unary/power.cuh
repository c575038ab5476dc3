#pragma once
// power  whole powers of x, its reciprocal, and its roots.
#include "elementwise/gradients.cuh"

namespace baracuda {

BARACUDA_UNARY(Square, times(x, x))
BARACUDA_UNARY(Cube, (x * x * x))
BARACUDA_UNARY(Reciprocal, A(1) / x)
BARACUDA_UNARY(Sqrt, math::sqrt(x))
BARACUDA_UNARY(Rsqrt, math::rsqrt(x))
BARACUDA_UNARY(Cbrt, math::cbrt(x))

namespace gradient {

// Whether x^2, 1 / x^2 and sqrt(x) / x are normal numbers. Then they are multiplied first: a subnormal dy would lose
// digits in a product that is subnormal again. Else dy is multiplied first, and either leaves the subnormals at once or
// only shrinks.
template <class A> BARACUDA_D bool has_square(A x) {
  constexpr A end = is_same<A, float> ? A(9.223372036854775808e18) : A(6.703903964971299e153);  // 2^63, 2^511
  return magnitude(x) < end && magnitude(x) > A(1) / end;
}

BARACUDA_GRADIENT(Square, A(2) * (dy * x))

template <class T> struct Cube {
  using A = acc_t<T>;
  static BARACUDA_D A value(A dy, A x, const Coefficients<A>& = {}) {
    return has_square(x) ? dy * (A(3) * (x * x)) : A(3) * (dy * x * x);
  }
};

template <class T> struct Reciprocal {
  using A = acc_t<T>;
  static BARACUDA_D A value(A dy, A x, const Coefficients<A>& = {}) {
    return -(has_square(x) ? dy / (x * x) : dy / x / x);
  }
};

BARACUDA_GRADIENT(Sqrt, dy / (A(2) * math::sqrt(x)))

template <class T> struct Rsqrt {
  using A = acc_t<T>;
  static BARACUDA_D A value(A dy, A x, const Coefficients<A>& = {}) {
    const A r = A(-0.5) * math::rsqrt(x);
    return has_square(x) ? dy * (r / x) : dy * r / x;
  }
};

// dy / (3 cbrt(x)^2)
template <class T> struct Cbrt {
  using A = acc_t<T>;
  static BARACUDA_D A value(A dy, A x, const Coefficients<A>& = {}) {
    const A r = math::cbrt(x);
    return dy / (A(3) * (r * r));
  }
};

}  // namespace gradient
}  // namespace baracuda
