#pragma once
// integrals_gradients  gradient::F<T>::value(dy, x, k) = dy f'(x), for the functions of integrals.cuh, in double as they.
#include "elementwise/exponential_slopes.cuh"
#include "elementwise/integrals.cuh"
#include "elementwise/special_gradients.cuh"

namespace baracuda::special {

// dy exp(x) / x; the exponential in two parts, and what a subnormal dy becomes is divided, not dy itself.
BARACUDA_SPECIAL double expi_slope(double dy, double x) {
  if (math::isinf(x)) return dy * (x > 0.0 ? x : 0.0);
  if (math::abs(x) < 1.0) return x == 0.0 ? dy / x : times_quotient(dy, math::exp(x), x);
  if (x > 2500.0) return dy == 0.0 ? dy : dy * numeric<double>::infinity();
  const double near = clamp(x, -far_exp<double>, far_exp<double>), e = math::exp(near);
  const double y = magnitude(dy) < 1e-290 ? dy * e / x : dy / x * e;
  return baracuda::times_rest<double>(y, x - near, far_exp<double>, [](double v) { return math::exp(v); });
}
BARACUDA_D double exp1_slope(double dy, double x) {
  return x < 0.0 ? numeric<double>::nan() : expi_slope(dy, -math::abs(x));
}
BARACUDA_SPECIAL double dawsn_slope(double dy, double x) {
  if (math::isinf(x)) return dy * 0.0;
  if (math::abs(x) < dawsn_far_from) return dy * math::fma(-2.0 * x, dawsn_below(x), 1.0);
  const double w = 1.0 / x;
  return dy * (-2.0 * dawsn_rest(w) * w) * w;
}
BARACUDA_SPECIAL double fresnel_s_slope(double dy, double x) {
  if (math::abs(x) < 1e-6) return dy * x * (0.5 * pi * x);  // x^2 may vanish where dy x^2 does not
  return dy * math::sinpi(half_square(x));
}
BARACUDA_SPECIAL double fresnel_c_slope(double dy, double x) { return dy * math::cospi(half_square(x)); }
BARACUDA_SPECIAL double si_slope(double dy, double x) {
  // Where sin(x) / x alone would be subnormal.
  if (math::abs(x) > 1e290 && !math::isinf(x)) return dy / x * math::sin(x);
  return dy * spherical_j0(x);
}
BARACUDA_SPECIAL double ci_slope(double dy, double x) {
  if (math::isinf(x)) return x > 0.0 ? dy * 0.0 : numeric<double>::nan();
  return math::abs(x) < 1e-8 ? dy / x : dy * (math::cos(x) / x);
}
// dy log(x) / (1 - x)
BARACUDA_SPECIAL double spence_slope(double dy, double x) {
  if (!(x >= 0.0)) return numeric<double>::nan();
  if (x == 1.0 || math::isinf(x)) return x == 1.0 ? -dy : dy * 0.0;
  const double gap = x - 1.0;
  return math::abs(gap) < 0.5 ? -dy * (math::log1p(gap) / gap) : -dy * (math::log(x) / gap);
}

}  // namespace baracuda::special

namespace baracuda::gradient {

BARACUDA_SLOPE(Exp1, exp1_slope(dy, x))
BARACUDA_SLOPE(Expi, expi_slope(dy, x))
BARACUDA_SLOPE(Dawsn, dawsn_slope(dy, x))
BARACUDA_SLOPE(FresnelS, fresnel_s_slope(dy, x))
BARACUDA_SLOPE(FresnelC, fresnel_c_slope(dy, x))
BARACUDA_SLOPE(SineIntegral, si_slope(dy, x))
BARACUDA_SLOPE(CosineIntegral, ci_slope(dy, x))
BARACUDA_SLOPE(Spence, spence_slope(dy, x))

}  // namespace baracuda::gradient
