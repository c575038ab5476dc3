#pragma once
// gamma_parameter   derivatives by the parameter a of the incomplete gamma function P(a, x) and of gamma variates.
//
// With w(t) the density of a gamma variate over that at x, both are integrals of w(t) |log(t) - psi(a)| from 0 to x where
// log(x) < psi(a), and from x on elsewhere: no sign changes, so that no digits cancel. t is x exp(-s) or x exp(s). For
// small a and x the power series.
#include "elementwise/gauss.cuh"
#include "elementwise/incomplete.cuh"

namespace baracuda::special {

// exp(s) - 1 - s
BARACUDA_D double exponential_gap(double s) {
  if (math::abs(s) > 0.5) return math::expm1(s) - s;
  double sum = 1.0;
#pragma unroll
  for (int k = 16; k >= 3; --k) sum = math::fma(sum, s / k, 1.0);
  return 0.5 * s * s * sum;
}
// log(x) - psi(a); for a < 10 times a, which is 1 for a = 0.
BARACUDA_D double log_over_mean(double a, double x) {
  if (a < 10.0) return math::fma(a, math::log(x) - psi(a + 1.0), 1.0);
  const double w = 1.0 / a, s = w * w, d = (x - a) / a;
  double series = 0.0;  // of log(a) - psi(a) - w / 2
#pragma unroll
  for (int k = 7; k >= 0; --k) series = math::fma(series, s, bernoulli[k] / (2 * k + 2));
  const double log = math::abs(d) < 0.5 ? math::log1p(d) : math::log(x) - math::log(a);
  return log + math::fma(series, s, 0.5 * w);
}

// a times the integral, also by the series.
BARACUDA_D double parameter_integral(double a, double x) {
  const double log = log_over_mean(a, x), gap = math::abs(a - x), far = 42.0;  // w is exp(-far) at the end
  const bool below = log < 0.0;
  if (!below && x <= 2.0) {
    const double f = exponential_sum(-x, 32, [a](double term, int k) { return term / (a + k); });
    const double g = exponential_sum(-x, 32, [a](double term, int k) { return term / (a + k) * (k / (a + k)); });
    const double start = math::log(x) - psi(a + 1.0);
    return -math::fma(start, math::fma(a, f, 1.0), g) * math::exp(x);
  }
  const double sign = below ? -1.0 : 1.0, c = far / a, share = a < 10.0 ? a : 1.0;
  const double widest = below ? 0.5 * (c + math::sqrt(c) * math::sqrt(c + 8.0))
                              : 0.5 / x + math::sqrt(0.25 / x + 2.0 * far) / math::sqrt(x);
  const double end = below == (x < a) ? math::fmin(widest, far / gap) : widest;
  return (a < 10.0 ? 1.0 : a) * integral(end, [&](double s) {
           const double t = sign * s;
           return math::exp(math::fma(a - x, t, -x * exponential_gap(t))) * math::fma(share, s, sign * log);
         });
}
// dP/da. For a = 0 its limit, -E1(x).
BARACUDA_SPECIAL double gammainc_by_parameter(double x, double a) {
  if (!(a >= 0.0 && x >= 0.0) || (a == 0.0 && x == 0.0)) return numeric<double>::nan();
  if (x == 0.0 || math::isinf(a) || math::isinf(x)) return math::isinf(a) && math::isinf(x) ? a - x : 0.0;
  const double density = gamma_density(a, x);
  return density == 0.0 ? -density : -density * parameter_integral(a, x);
}
// The derivative of a gamma variate by its parameter, the uniform number that it comes from kept: -dP/da / (dP/dx).
BARACUDA_SPECIAL double variate_by_parameter(double x, double a) {
  if (!(a >= 0.0 && x >= 0.0) || math::isinf(a) || (a == 0.0 && x == 0.0)) return numeric<double>::nan();
  if (x == 0.0 || math::isinf(x)) return x;
  const double part = parameter_integral(a, x);
  return a < 1e-290 ? x / a * part : x * (part / a);
}

// dy x^(a - 1) exp(-x) / gamma(a)
BARACUDA_SPECIAL double gamma_slope(double dy, double x, double a) {
  if (!(a >= 0.0 && x >= 0.0) || (a == 0.0 && x == 0.0)) return numeric<double>::nan();
  if (x == 0.0) return at_end(dy, a, dy);
  if (a == 0.0 || math::isinf(a) || math::isinf(x)) return 0.0 * dy;
  return times_quotient(dy, gamma_density(a, x) * a, x);
}
BARACUDA_D double by_parameter(double dy, double x, double a) { return dy * gammainc_by_parameter(x, a); }

}  // namespace baracuda::special

namespace baracuda {

BARACUDA_PAIR(Gammainc, gammainc(a, b))
BARACUDA_PAIR(Gammaincc, gammaincc(a, b))
BARACUDA_PAIR(IgammaGradA, gammainc_by_parameter(a, b))
BARACUDA_PAIR(RandomGammaGrad, variate_by_parameter(a, b))

namespace partial {

BARACUDA_PARTIALS(Gammainc, gamma_slope(dy, a, b), by_parameter(dy, a, b))
BARACUDA_PARTIALS(Gammaincc, gamma_slope(-dy, a, b), by_parameter(-dy, a, b))

}  // namespace partial
}  // namespace baracuda
