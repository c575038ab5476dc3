#pragma once
// divergence   relative entropies and the Box-Cox transformations, and their gradients; in double.
#include "elementwise/pairs.cuh"

namespace baracuda::special {

// log(p / q) of positive numbers, also where the quotient leaves the range; near 1 from the difference.
BARACUDA_D double log_ratio(double p, double q) {
  const double ratio = p / q;
  if (ratio > 0.5 && ratio < 2.0) return math::log1p((p - q) / q);
  return math::lost(ratio) ? math::log(p) - math::log(q) : math::log(ratio);
}
BARACUDA_SPECIAL double rel_entr(double p, double q) {
  if (p != p || q != q) return numeric<double>::nan();
  if (p == 0.0 && q >= 0.0) return 0.0;
  return p > 0.0 && q > 0.0 ? p * log_ratio(p, q) : numeric<double>::infinity();
}
// p log(p / q) - p + q; where both are nearly equal p times d - log(1 + d), d = (q - p) / p.
BARACUDA_SPECIAL double kl_div(double p, double q) {
  if (p != p || q != q) return numeric<double>::nan();
  if (p == 0.0 && q >= 0.0) return q;
  if (!(p > 0.0 && q > 0.0)) return numeric<double>::infinity();
  const double d = (q - p) / p;
  return math::abs(d) < 0.5 ? p * log_gap(d) : p * log_ratio(p, q) - p + q;
}
BARACUDA_D double power(double x, double lambda) { return x < 0.0 ? numeric<double>::nan() : math::pow(x, lambda); }
BARACUDA_SPECIAL double boxcox(double x, double lambda) {
  const double log = math::log(x), t = lambda * log;
  if (lambda == 0.0 || math::abs(lambda) < 1e-290) return log;
  return math::abs(t) < 1.0 ? math::expm1(t) / lambda : (power(x, lambda) - 1.0) / lambda;
}
// (1 + x) to the lambda, by what 1 + x was rounded off.
BARACUDA_D double power1p(double x, double lambda) {
  const double y = 1.0 + x, low = math::abs(x) <= 1.0 ? x - (y - 1.0) : 1.0 - (y - x);
  const double power = math::pow(y, lambda);
  if (y < 0.0) return numeric<double>::nan();
  return math::isfinite(y) && y > 0.0 && math::isfinite(power) ? math::fma(power, lambda * low / y, power) : power;
}
BARACUDA_SPECIAL double boxcox1p(double x, double lambda) {
  const double log = math::log1p(x), t = lambda * log;
  if (lambda == 0.0 || math::abs(lambda) < 1e-290) return log;
  return math::abs(t) < 1.0 ? math::expm1(t) / lambda : (power1p(x, lambda) - 1.0) / lambda;
}

// ---- gradients ------------------------------------------------------------------------------------------------------

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

}  // namespace baracuda::special

namespace baracuda {

BARACUDA_PAIR(RelEntr, rel_entr(a, b))
BARACUDA_PAIR(KlDiv, kl_div(a, b))
BARACUDA_PAIR(Boxcox, boxcox(a, b))
BARACUDA_PAIR(Boxcox1p, boxcox1p(a, b))

namespace partial {

BARACUDA_PARTIALS(RelEntr, rel_entr_by_p(dy, a, b), rel_entr_by_q(dy, a, b))
BARACUDA_PARTIALS(KlDiv, kl_div_by_p(dy, a, b), kl_div_by_q(dy, a, b))
BARACUDA_PARTIALS(Boxcox, boxcox_by_x(dy, a, b), boxcox_by_factor(dy, a, b))
BARACUDA_PARTIALS(Boxcox1p, boxcox1p_by_x(dy, a, b), boxcox1p_by_factor(dy, a, b))

}  // namespace partial
}  // namespace baracuda
