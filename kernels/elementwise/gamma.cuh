#pragma once
// gamma      the gamma function, its sign, the factorial and the multivariate one's logarithm; kinds of unary, in double.
#include "elementwise/in_double.cuh"

namespace baracuda::special {

BARACUDA_D bool is_pole(double x) { return x <= 0.0 && x == math::floor(x); }

// NaN at the poles below 0, an infinity at 0.
BARACUDA_SPECIAL double gamma(double x) { return ::tgamma(x); }
// gamma(x + 1), which is x gamma(x) without the rounding of x + 1 where that matters.
BARACUDA_SPECIAL double factorial(double x) {
  return x > 1.0 ? x * ::tgamma(x) : x == -1.0 ? numeric<double>::nan() : ::tgamma(x + 1.0);
}
BARACUDA_SPECIAL double gammasgn(double x) {
  if (x > 0.0 || x != x) return x > 0.0 ? 1.0 : x;
  if (x == 0.0) return math::copysign(1.0, x);
  if (is_pole(x)) return numeric<double>::nan();
  const double whole = math::floor(x);
  return whole == 2.0 * math::floor(0.5 * whole) ? 1.0 : -1.0;
}
// p (p - 1) log(pi) / 4 + the sum of log gamma(x - j / 2) over j < p; NaN where an argument is not positive.
BARACUDA_SPECIAL double multigammaln(double x, double p) {
  if (!(x > 0.5 * (p - 1.0))) return numeric<double>::nan();
  double sum = 0.25 * p * (p - 1.0) * 1.1447298858494002;
#pragma unroll 1
  for (double j = 0.0; j < p; j += 1.0) sum += ::lgamma(x - 0.5 * j);
  return sum;
}

}  // namespace baracuda::special

namespace baracuda {

BARACUDA_FUNCTION(Gamma, gamma(x))
BARACUDA_FUNCTION(Factorial, factorial(x))
BARACUDA_FUNCTION(Gammasgn, gammasgn(x))
BARACUDA_FUNCTION(Multigammaln, multigammaln(x, k.a))

}  // namespace baracuda
