#pragma once
// special_partials   dy ∂f/∂a and dy ∂f/∂b of the functions of special_functors.cuh, in double as they.
#include "elementwise/special_functors.cuh"
#include "elementwise/special_gradients.cuh"

namespace baracuda {

namespace special {

// ---- sums of gammas -------------------------------------------------------------------------------------------------

BARACUDA_D double zeta_slope(double dy, double q, double s) { return -dy * (s * zeta_of(q, s + 1.0)); }
BARACUDA_SPECIAL double expn_slope(double dy, double x, double n) {
  if (n != 0.0) return -dy * expn_of(x, n - 1.0);
  const double h = math::exp(-0.5 * x);
  return x >= 0.0 ? -dy * (h * ((1.0 / x + 1.0 / x / x) * h)) : numeric<double>::nan();
}
BARACUDA_D double betaln_slope(double dy, double a, double b) { return dy * (digamma(a) - digamma(a + b)); }
BARACUDA_D double beta_slope(double dy, double a, double b) {
  return dy * (beta(a, b) * (digamma(a) - digamma(a + b)));
}
BARACUDA_D double poch_by_start(double dy, double z, double m) {
  return dy * (poch(z, m) * (digamma(z + m) - digamma(z)));
}
BARACUDA_D double poch_by_steps(double dy, double z, double m) { return dy * (poch(z, m) * digamma(z + m)); }

// ---- incomplete functions -------------------------------------------------------------------------------------------

// What a density of the form t^(own - 1) … is at t = 0, times dy: `finite` for own = 1.
BARACUDA_D double at_end(double dy, double own, double finite) {
  return own > 1.0 ? 0.0 * dy : own == 1.0 ? finite : dy * numeric<double>::infinity();
}
// dy x^(a - 1) exp(-x) / gamma(a)
BARACUDA_SPECIAL double gamma_slope(double dy, double x, double a) {
  if (!(a >= 0.0 && x >= 0.0) || (a == 0.0 && x == 0.0)) return numeric<double>::nan();
  if (x == 0.0) return at_end(dy, a, dy);
  if (a == 0.0 || math::isinf(a) || math::isinf(x)) return 0.0 * dy;
  return times_quotient(dy, gamma_density(a, x) * a, x);
}
BARACUDA_D double by_parameter(double dy, double x, double a) { return dy * gammainc_by_parameter(x, a); }
BARACUDA_SPECIAL double betainc_slope(double dy, double x, double a, double b) {
  if (!(a > 0.0 && b > 0.0 && x >= 0.0 && x <= 1.0) || math::isinf(a) || math::isinf(b)) return numeric<double>::nan();
  if (x == 0.0) return at_end(dy, a, dy * b);
  if (x == 1.0) return at_end(dy, b, dy * a);
  return times_quotient(dy, beta_density(a, b, x, 1.0 - x), x) / (1.0 - x);
}

// ---- relative entropies, Box and Cox --------------------------------------------------------------------------------

// A gradient of a divergence: of positive numbers; `at_zero` for p = 0; NaN elsewhere.
BARACUDA_D double inside(double p, double q, double value, double at_zero) {
  return p > 0.0 && q > 0.0 ? value : p == 0.0 && q >= 0.0 ? at_zero : numeric<double>::nan();
}
BARACUDA_SPECIAL double rel_entr_by_p(double dy, double p, double q) {
  return inside(p, q, dy * (log_ratio(p, q) + 1.0), -dy * numeric<double>::infinity());
}
BARACUDA_D double rel_entr_by_q(double dy, double p, double q) { return inside(p, q, -dy * (p / q), dy * 0.0); }
BARACUDA_SPECIAL double kl_div_by_p(double dy, double p, double q) {
  return inside(p, q, dy * log_ratio(p, q), -dy * numeric<double>::infinity());
}
BARACUDA_D double kl_div_by_q(double dy, double p, double q) { return inside(p, q, dy * ((q - p) / q), dy); }

// dy log(x)^2 h(t), t = lambda log(x) and h(t) = ((t - 1) exp(t) + 1) / t^2, whose series has the terms
// (k + 1) t^k / (k + 2)!
BARACUDA_D double boxcox_by_lambda(double dy, double log, double lambda, double power) {
  const double t = lambda * log;
  if (math::abs(t) < 1.0) {
    double sum = 0.0, term = 0.5;
    for (int k = 0; k < 20; ++k) {
      sum = math::fma(k + 1.0, term, sum);
      term *= t / (k + 3);
    }
    return dy * (log * log * sum);
  }
  return dy * ((power == 0.0 ? 1.0 : math::fma(t - 1.0, power, 1.0)) / lambda / lambda);
}
BARACUDA_SPECIAL double boxcox_by_x(double dy, double x, double lambda) { return dy * power(x, lambda - 1.0); }
BARACUDA_SPECIAL double boxcox_by_factor(double dy, double x, double lambda) {
  return boxcox_by_lambda(dy, math::log(x), lambda, power(x, lambda));
}
BARACUDA_SPECIAL double boxcox1p_by_x(double dy, double x, double lambda) { return dy * power1p(x, lambda - 1.0); }
BARACUDA_SPECIAL double boxcox1p_by_factor(double dy, double x, double lambda) {
  return boxcox_by_lambda(dy, math::log1p(x), lambda, power1p(x, lambda));
}

}  // namespace special

namespace partial {

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

BARACUDA_PARTIALS(Beta, beta_slope(dy, a, b), beta_slope(dy, b, a))
BARACUDA_PARTIALS(Betaln, betaln_slope(dy, a, b), betaln_slope(dy, b, a))
BARACUDA_PARTIALS(Poch, poch_by_start(dy, a, b), poch_by_steps(dy, a, b))
BARACUDA_PARTIAL_BY_A(Zeta, zeta_slope(dy, a, b))
BARACUDA_PARTIAL_BY_A(Expn, expn_slope(dy, a, b))
BARACUDA_PARTIALS(RelEntr, rel_entr_by_p(dy, a, b), rel_entr_by_q(dy, a, b))
BARACUDA_PARTIALS(KlDiv, kl_div_by_p(dy, a, b), kl_div_by_q(dy, a, b))
BARACUDA_PARTIALS(Boxcox, boxcox_by_x(dy, a, b), boxcox_by_factor(dy, a, b))
BARACUDA_PARTIALS(Boxcox1p, boxcox1p_by_x(dy, a, b), boxcox1p_by_factor(dy, a, b))
BARACUDA_PARTIALS(Gammainc, gamma_slope(dy, a, b), by_parameter(dy, a, b))
BARACUDA_PARTIALS(Gammaincc, gamma_slope(-dy, a, b), by_parameter(-dy, a, b))
BARACUDA_PARTIALS(OwensT, owens_by_h(dy, a, b), owens_by_a(dy, a, b))
BARACUDA_PARTIAL_BY_A(BesselJn, jn_slope(dy, a, b))
BARACUDA_PARTIAL_BY_A(SphLegendreP, sph_legendre_slope(dy, a, b, c))
BARACUDA_PARTIAL_BY_A(Betainc, betainc_slope(dy, a, b, c))
BARACUDA_PARTIAL_BY_A(Hyp1f1, hyp1f1_slope(dy, a, b, c))
BARACUDA_PARTIAL_BY_A(Hyp2f1, hyp2f1_slope(dy, a, b, c, d))

#undef BARACUDA_PARTIALS
#undef BARACUDA_PARTIAL_BY_A

}  // namespace partial
}  // namespace baracuda
