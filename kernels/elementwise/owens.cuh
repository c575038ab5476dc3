#pragma once
// owens      Owen's function T(h, a), the integral of exp(-h^2 (1 + x^2) / 2) / (2 pi (1 + x^2)) from 0 to a; in double.
#include "elementwise/gauss.cuh"

namespace baracuda::special {

// For 0 <= a <= 1, without the factor exp(-h^2 / 2) / (2 pi); beyond 9 / h the integrand has vanished.
BARACUDA_D double owens_integral(double h, double a) {
  return integral(math::fmin(a, 9.0 / h), [&](double x) {
    const double t = h * x;
    return math::exp(-0.5 * t * t) / math::fma(x, x, 1.0);
  });
}
// One half of erfc(h / sqrt(2)), h >= 0, less the factor exp(-h^2 / 2).
BARACUDA_D double upper_tail(double h) { return 0.5 * ::erfcx(h * sqrt_half); }

// Beyond h = 64 nothing is left. For a > 1 by T(h, a) = q(h) / 2 + q(h a) / 2 - q(h) q(h a) - T(h a, 1 / a), q the tail of the normal distribution.
BARACUDA_SPECIAL double owens_t(double h, double a) {
  const double size = math::abs(a), u = math::abs(h), over_two_pi = 0.15915494309189535;
  if (h != h || a != a) return numeric<double>::nan();
  if (u == 0.0) return over_two_pi * math::atan(a);
  const bool beyond = size > 1.0;
  const double v = math::fmin(beyond ? u * size : u, 128.0), g = bell(v, 0.25);
  double y = g * (over_two_pi * owens_integral(v, beyond ? 1.0 / size : size)) * g;
  if (beyond) {
    const double e = bell(u, 0.25), q = upper_tail(v) * g * g;
    y = math::fma(e * upper_tail(u) * e, 0.5 - q, 0.5 * q - y);
  }
  return math::copysign(y, a);
}
BARACUDA_SPECIAL double owens_by_h(double dy, double h, double a) {
  const double g = bell(h, 0.25);
  return -(dy * g * (0.5 * one_over_sqrt_two_pi * ::erf(h * a * sqrt_half)) * g);
}
// The square of h a as that of two numbers.
BARACUDA_SPECIAL double owens_by_a(double dy, double h, double a) {
  if (h != h || a != a) return numeric<double>::nan();
  if (math::isinf(h) || math::isinf(a)) return dy * 0.0;
  const double p = h * a, low = math::abs(p) < 64.0 ? math::fma(h, a, -p) : 0.0, g = bell(h, 0.25), e = bell(p, 0.25);
  const double r = math::hypot(a, 1.0);
  return dy * g * e / r * (0.15915494309189535 * math::fma(-p, low, 1.0)) * e * g / r;
}

}  // namespace baracuda::special

namespace baracuda {

BARACUDA_PAIR(OwensT, owens_t(a, b))

namespace partial {

BARACUDA_PARTIALS(OwensT, owens_by_h(dy, a, b), owens_by_a(dy, a, b))

}  // namespace partial
}  // namespace baracuda
