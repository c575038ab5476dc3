#pragma once
// bessel_gradients   gradient::F<T>::value(dy, x, k) = dy f'(x), for the functions of bessel.cuh, in double as they.
//
// As in gradients.cuh, dy is part of each formula, so that the product is right where f'(x) alone leaves the range.
#include "elementwise/bessel.cuh"
#include "elementwise/special_gradients.cuh"

namespace baracuda::special {

constexpr double two_over_pi = 0.6366197723675814;
constexpr double pole_until = 1e-20;  // up to here Y1(x) is -2 / (pi x), and K1(x) is 1 / x

BARACUDA_SPECIAL double j0_slope(double dy, double x) { return math::abs(x) < 1e-8 ? -(0.5 * dy) * x : -dy * j1_of(x); }
BARACUDA_SPECIAL double j1_slope(double dy, double x) {
  return math::abs(x) < 1e-8 ? 0.5 * dy : dy * (j0_of(x) - j1_of(x) / x);
}
BARACUDA_D double over(double dy, double factor, double x) { return times_quotient(dy, factor, x); }
BARACUDA_SPECIAL double y0_slope(double dy, double x) {
  return x >= 0.0 && x < pole_until ? over(dy, two_over_pi, x) : -dy * y1_of(x);
}
BARACUDA_SPECIAL double y1_slope(double dy, double x) {
  if (x >= 0.0 && x < pole_until) return over(over(dy, two_over_pi, x), 1.0, x);
  return dy * (y0_of(x) - y1_of(x) / x);
}

// dy y exp(-x), as two square roots around y.
BARACUDA_D double times_decayed(double dy, double y, double x) {
  const double h = math::exp(-0.5 * x);
  return dy * h * (y * h);
}
BARACUDA_SPECIAL double k0_slope(double dy, double x) {
  if (x >= 0.0 && x < pole_until) return -over(dy, 1.0, x);
  if (x < k_far_from) return -dy * k1_below(x);
  return -times_decayed(dy, k_beyond(x, k1_far, 26), x);
}
BARACUDA_SPECIAL double k1_slope(double dy, double x) {
  if (x >= 0.0 && x < pole_until) return -over(over(dy, 1.0, x), 1.0, x);
  if (x < k_far_from) return -dy * (k0_below(x) + k1_below(x) / x);
  return -times_decayed(dy, k_beyond(x, k0_far, 26) + k_beyond(x, k1_far, 26) / x, x);
}
BARACUDA_SPECIAL double k0e_slope(double dy, double x) {
  if (x >= 0.0 && x < pole_until) return -over(dy, 1.0, x);
  if (x < k_far_from) return dy * (math::exp(x) * (k0_below(x) - k1_below(x)));
  return -dy * k_beyond(x, k1_k0_far, 29) / x;
}
BARACUDA_SPECIAL double k1e_slope(double dy, double x) {
  if (x >= 0.0 && x < pole_until) return -over(over(dy, 1.0, x), 1.0, x);
  const double k = k1_below(x);
  if (x < k_far_from) return -dy * (math::exp(x) * ((k0_below(x) - k) + k / x));
  return -dy * k_beyond(x, k1e_slope_far, 29) / x;
}

}  // namespace baracuda::special

namespace baracuda::gradient {

BARACUDA_SLOPE(BesselJ0, j0_slope(dy, x))
BARACUDA_SLOPE(BesselJ1, j1_slope(dy, x))
BARACUDA_SLOPE(BesselY0, y0_slope(dy, x))
BARACUDA_SLOPE(BesselY1, y1_slope(dy, x))
BARACUDA_SLOPE(ModifiedBesselK0, k0_slope(dy, x))
BARACUDA_SLOPE(ModifiedBesselK1, k1_slope(dy, x))
BARACUDA_SLOPE(ScaledModifiedBesselK0, k0e_slope(dy, x))
BARACUDA_SLOPE(ScaledModifiedBesselK1, k1e_slope(dy, x))

}  // namespace baracuda::gradient
