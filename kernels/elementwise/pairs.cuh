#pragma once
// pairs      what the special functions of two to four numbers share: functors that compute in double, and logarithms.
#include "elementwise/special.cuh"

#define BARACUDA_QUADRUPLE(Name, formula)                                         \
  template <class T> struct Name {                                                \
    using A = acc_t<T>;                                                           \
    static BARACUDA_D A value(A first, A second, A third, A fourth) {             \
      [[maybe_unused]] const double a = first, b = second, c = third, d = fourth; \
      return static_cast<A>(special::formula);                                    \
    }                                                                             \
  };
#define BARACUDA_TRIPLE(Name, formula) BARACUDA_QUADRUPLE(Name, formula)
#define BARACUDA_PAIR(Name, formula) BARACUDA_QUADRUPLE(Name, formula)
// dy ∂f/∂a and dy ∂f/∂b of such a functor, or of a alone.
#define BARACUDA_PARTIALS(Name, of_a, of_b)                                                            \
  template <class T> struct Name {                                                                     \
    using A = acc_t<T>;                                                                                \
    template <int OPERAND> static BARACUDA_D A of(A cotangent, A first, A second, A third, A fourth) { \
      [[maybe_unused]] const double dy = cotangent, a = first, b = second, c = third, d = fourth;      \
      return static_cast<A>(OPERAND == 0 ? special::of_a : OPERAND == 1 ? special::of_b : 0.0);        \
    }                                                                                                  \
  };
#define BARACUDA_PARTIAL_BY_A(Name, of_a)                                                              \
  template <class T> struct Name {                                                                     \
    using A = acc_t<T>;                                                                                \
    template <int OPERAND> static BARACUDA_D A of(A cotangent, A first, A second, A third, A fourth) { \
      [[maybe_unused]] const double dy = cotangent, a = first, b = second, c = third, d = fourth;      \
      return static_cast<A>(OPERAND == 0 ? special::of_a : 0.0);                                       \
    }                                                                                                  \
  };

namespace baracuda::special {

// d - log(1 + d) for |d| < 1/2 from the series of the inverse hyperbolic tangent of s = d / (2 + d), and beyond directly.
BARACUDA_D double log_gap(double d) {
  if (!(math::abs(d) < 0.5)) return d - math::log1p(d);
  const double s = d / (2.0 + d), t = s * s;
  double sum = 1.0 / 37.0;
#pragma unroll
  for (int k = 35; k >= 3; k -= 2) sum = math::fma(sum, t, 1.0 / k);
  return math::fma(-2.0 * s * t, sum, s * d);
}

// The same where 1 + d is known as a ratio, which 1 + d may have few digits of.
BARACUDA_D double log_gap(double d, double ratio) { return math::abs(d) < 0.5 ? log_gap(d) : d - math::log(ratio); }

// log(gamma(a)) - ((a - 1/2) log(a) - a + log(2 pi) / 2), a >= 10.
BARACUDA_D double stirling(double a) {
  const double w = 1.0 / a, t = w * w;
  double sum = 0.0;
#pragma unroll
  for (int k = 8; k >= 1; --k) sum = math::fma(sum, t, bernoulli[k - 1] / (2 * k * (2 * k - 1)));
  return sum * w;
}

}  // namespace baracuda::special
