#pragma once
// gamma_gradients    gradient::F<T>::value(dy, x, k) = dy f'(x), for the functions of gamma.cuh, in double as they.
#include "elementwise/gamma.cuh"
#include "elementwise/special_gradients.cuh"

namespace baracuda::special {

// psi(x) by reflection below 0; x is no pole.
BARACUDA_D double psi_of(double x) { return x > 0.0 ? psi(x) : psi(1.0 - x) - pi * math::cospi(x) / math::sinpi(x); }

// dy gamma(x) psi(x): near 0 as -dy / x^2, far below 0 by reflection; where gamma leaves the range one factor at a time.
BARACUDA_D double gamma_slope_of(double dy, double x) {
  if (x != x || (is_pole(x) && x != 0.0)) return numeric<double>::nan();
  if (math::abs(x) < 1e-20) return -times_quotient(times_quotient(dy, 1.0, math::abs(x)), 1.0, math::abs(x));
  if (magnitude(x) < 150.0) return dy * (::tgamma(x) * psi_of(x));
  const bool below = x < 0.0, first = !below || magnitude(dy) < 1e250;  // a large dy shrinks before it grows
  const double factor = (below ? pi / math::sinpi(x) : 1.0) * psi_of(x);
  double y = first && below ? dy * factor : dy, rest = below ? 1.0 - x : x;
  if (rest > 600.0) return below ? 0.0 * dy : dy == 0.0 && !math::isinf(x) ? dy : dy * numeric<double>::infinity();
  const double steps = math::ceil(rest - 150.0);
  rest -= steps;  // gamma of it first, so that a subnormal dy leaves the subnormals at once
  y = below ? y / ::tgamma(rest) : y * ::tgamma(rest);
#pragma unroll 1
  for (double k = 0.0; k < steps; k += 1.0) y = below ? y / (rest + k) : y * (rest + k);
  return first && below ? y : y * factor;
}
BARACUDA_SPECIAL double gamma_slope(double dy, double x) { return gamma_slope_of(dy, x); }
// dy gamma(x + 1) psi(x + 1), x > 1 without the rounding of x + 1.
BARACUDA_SPECIAL double factorial_slope(double dy, double x) {
  if (!(x > 1.0 && x < 140.0)) return gamma_slope_of(dy, x + 1.0);
  return dy * (x * ::tgamma(x) * psi(x + 1.0));
}
BARACUDA_SPECIAL double multigammaln_slope(double dy, double x, double p) {
  if (!(x > 0.5 * (p - 1.0))) return numeric<double>::nan();
  double sum = 0.0;
#pragma unroll 1
  for (double j = 0.0; j < p; j += 1.0) {
    const double t = x - 0.5 * j;
    if (t < 1e-20) return times_quotient(-dy, 1.0, t);
    sum += math::isinf(t) ? t : psi(t);
  }
  return dy * sum;
}

}  // namespace baracuda::special

namespace baracuda::gradient {

BARACUDA_SLOPE(Gamma, gamma_slope(dy, x))
BARACUDA_SLOPE(Factorial, factorial_slope(dy, x))
BARACUDA_SLOPE(Multigammaln, multigammaln_slope(dy, x, k.a))

}  // namespace baracuda::gradient
