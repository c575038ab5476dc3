#pragma once
// gamma      the gamma function, its sign, the factorial, the multivariate one's logarithm and Bernoulli
//            numbers; kinds of unary, in double.
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

// B(x) for whole x from 0 on, B(1) = -1/2, else NaN: beyond 24 as 2 n! zeta(n) / (2 pi)^n, whose factors k / (2 pi) are
// multiplied in turn, each by a double and what it lacks.
BARACUDA_SPECIAL double bernoulli_number(double x) {
  if (!(x >= 0.0) || x != math::floor(x) || math::isinf(x)) return numeric<double>::nan();
  if (x < 2.0) return x == 0.0 ? 1.0 : -0.5;
  const double half = 0.5 * x;
  if (half != math::floor(half)) return 0.0;
  if (half <= 12.0) return bernoulli[static_cast<int>(half) - 1];
  const double sign = half == 2.0 * math::floor(0.5 * half) ? -1.0 : 1.0;
  if (x > 258.0) return sign * numeric<double>::infinity();
  constexpr double factor = 0.15915494309189535, lacking = -9.8393383375912429e-18;  // 1 / (2 pi)
  double y = 2.0, rest = 0.0;                                                        // y + rest
#pragma unroll 1
  for (double k = 1.0; k <= x; k += 1.0) {
    const double by = k * factor, less = math::fma(k, factor, -by) + k * lacking, p = y * by;
    rest = math::fma(y, by, -p) + math::fma(y, less, rest * by);
    y = p;
  }
  const double zeta = ::exp2(-x) + (::pow(3.0, -x) + ::exp2(-2.0 * x));  // less 1
  return sign * (y + math::fma(y, zeta, rest));
}

}  // namespace baracuda::special

namespace baracuda {

BARACUDA_FUNCTION(Gamma, gamma(x))
BARACUDA_FUNCTION(Factorial, factorial(x))
BARACUDA_FUNCTION(Gammasgn, gammasgn(x))
BARACUDA_FUNCTION(Multigammaln, multigammaln(x, k.a))
BARACUDA_FUNCTION(BernoulliNumber, bernoulli_number(x))

}  // namespace baracuda
