#pragma once
// orthogonal   orthogonal polynomials of degree n by their recurrences, upwards from 0, as PyTorch has them.
//
// n is cut to a whole number; a negative one gives 0, one beyond the limit NaN. Every step is rounded as it is written,
// so that double has the bits of the formula in NumPy. The slope by x goes through the recurrence differentiated.
#include <baracuda/math.cuh>

namespace baracuda::orthogonal {

enum Family { CHEBYSHEV, HERMITE_H, HERMITE_HE, LAGUERRE, LEGENDRE };
constexpr double degree_limit = 65536.0;

// The polynomial of degree k + 1 from those of degree k and k - 1.
template <Family F> BARACUDA_D double above(double x, double k, double here, double below) {
  if constexpr (F == CHEBYSHEV) return (x + x) * here - below;
  else if constexpr (F == HERMITE_H) return (x + x) * here - (k + k) * below;
  else if constexpr (F == HERMITE_HE) return x * here - k * below;
  else if constexpr (F == LAGUERRE) return ((k + k + 1.0 - x) * here - k * below) / (k + 1.0);
  else return ((k + k + 1.0) * x * here - k * below) / (k + 1.0);
}
// The sign of the leading term, where that is all of the polynomial: beyond its zeros.
template <Family F> BARACUDA_D double overflowed(double x, double n) {
  const bool odd = n != 2.0 * math::floor(0.5 * n);
  const bool waves = F == LAGUERRE                       ? x > 0.0 && x < 4.0 * n + 2.0
                     : F == HERMITE_H || F == HERMITE_HE ? x * x < (F == HERMITE_H ? 2.0 : 4.0) * n + 2.0
                                                         : false;
  if (waves) return numeric<double>::nan();
  return ((F == LAGUERRE) == (x > 0.0)) && odd ? -numeric<double>::infinity() : numeric<double>::infinity();
}
// first: the polynomial of degree 1.
template <Family F> static __device__ __noinline__ double polynomial(double x, double n, double first) {
  n = math::trunc(n);
  if (x != x || n != n || n > degree_limit) return numeric<double>::nan();
  if (n < 0.0) return 0.0;
  double below = 1.0, here = n == 0.0 ? 1.0 : first;
#pragma unroll 1
  for (double k = 1.0; k < n && math::isfinite(here); k += 1.0) {
    const double next = above<F>(x, k, here, below);
    below = here, here = next;
  }
  return math::isfinite(here) ? here : overflowed<F>(x, n);
}

// What the derivative of a step has beside the step of the derivatives.
template <Family F> BARACUDA_D double rise(double k, double here) {
  if constexpr (F == CHEBYSHEV || F == HERMITE_H) return here + here;
  else if constexpr (F == HERMITE_HE) return here;
  else if constexpr (F == LAGUERRE) return -here / (k + 1.0);
  else return (k + k + 1.0) * here / (k + 1.0);
}
// The derivative; NaN where it, or the polynomial on the way to it, leaves the range.
template <Family F> static __device__ __noinline__ double slope(double x, double n, double first, double first_slope) {
  n = math::trunc(n);
  if (x != x || n != n || n > degree_limit) return numeric<double>::nan();
  if (n < 1.0) return 0.0;
  double below = 1.0, here = first, slope_below = 0.0, found = first_slope;
#pragma unroll 1
  for (double k = 1.0; k < n && math::isfinite(here) && math::isfinite(found); k += 1.0) {
    const double next = above<F>(x, k, here, below), next_slope = above<F>(x, k, found, slope_below) + rise<F>(k, here);
    below = here, here = next, slope_below = found, found = next_slope;
  }
  return math::isfinite(here) && math::isfinite(found) ? found : numeric<double>::nan();
}

}  // namespace baracuda::orthogonal

namespace baracuda {

// by_x: dx of a. first: the polynomial of degree 1, first_slope: its derivative by x.
#define BARACUDA_POLYNOMIAL(Name, family, argument, by_x, first, first_slope)                      \
  template <class T> struct Name {                                                                 \
    using A = acc_t<T>;                                                                            \
    static BARACUDA_D A value(A a, A b, A, A) {                                                    \
      const double x = argument;                                                                   \
      return static_cast<A>(orthogonal::polynomial<orthogonal::family>(x, b, first));              \
    }                                                                                              \
  };                                                                                               \
  namespace partial {                                                                              \
  template <class T> struct Name {                                                                 \
    using A = acc_t<T>;                                                                            \
    template <int> static BARACUDA_D A of(A dy, A a, A b, A, A) {                                  \
      const double x = argument;                                                                   \
      const double found = by_x * orthogonal::slope<orthogonal::family>(x, b, first, first_slope); \
      return static_cast<A>(static_cast<double>(dy) * found);                                      \
    }                                                                                              \
  };                                                                                               \
  }

BARACUDA_POLYNOMIAL(ChebyshevPolynomialT, CHEBYSHEV, a, 1.0, x, 1.0)
BARACUDA_POLYNOMIAL(ChebyshevPolynomialU, CHEBYSHEV, a, 1.0, x + x, 2.0)
BARACUDA_POLYNOMIAL(ChebyshevPolynomialV, CHEBYSHEV, a, 1.0, x + x - 1.0, 2.0)
BARACUDA_POLYNOMIAL(ChebyshevPolynomialW, CHEBYSHEV, a, 1.0, x + x + 1.0, 2.0)
BARACUDA_POLYNOMIAL(ShiftedChebyshevPolynomialT, CHEBYSHEV, 2.0 * a - 1.0, 2.0, x, 1.0)
BARACUDA_POLYNOMIAL(ShiftedChebyshevPolynomialU, CHEBYSHEV, 2.0 * a - 1.0, 2.0, x + x, 2.0)
BARACUDA_POLYNOMIAL(ShiftedChebyshevPolynomialV, CHEBYSHEV, 2.0 * a - 1.0, 2.0, x + x - 1.0, 2.0)
BARACUDA_POLYNOMIAL(ShiftedChebyshevPolynomialW, CHEBYSHEV, 2.0 * a - 1.0, 2.0, x + x + 1.0, 2.0)
BARACUDA_POLYNOMIAL(HermitePolynomialH, HERMITE_H, a, 1.0, x + x, 2.0)
BARACUDA_POLYNOMIAL(HermitePolynomialHe, HERMITE_HE, a, 1.0, x, 1.0)
BARACUDA_POLYNOMIAL(LaguerrePolynomialL, LAGUERRE, a, 1.0, 1.0 - x, -1.0)
BARACUDA_POLYNOMIAL(LegendrePolynomialP, LEGENDRE, a, 1.0, x, 1.0)

#undef BARACUDA_POLYNOMIAL

}  // namespace baracuda
