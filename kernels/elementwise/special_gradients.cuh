#pragma once
// special_gradients   gradient::F<T>::value(dy, x, k) = dy f'(x), for the functions of special.cuh, in double as they.
//
// As in gradients.cuh, dy is part of each formula: small factors are applied as two square roots around it.
#include "elementwise/gradients.cuh"
#include "elementwise/special.cuh"

namespace baracuda::special {

BARACUDA_D double sign_of(double x) { return math::copysign(1.0, x); }

// exp(x^2 / 4), the square as two numbers.
BARACUDA_D double exp_quarter_square(double x) {
  const double s = x * x, low = math::fma(x, x, -s), e = math::exp(0.25 * s);
  return math::isinf(e) ? e : math::fma(e, 0.25 * low, e);
}
// dy (2 x erfcx(x) - 2 / sqrt(pi)); from x = 10 on, where both terms are nearly equal, by its asymptotic series.
BARACUDA_SPECIAL double erfcx_slope(double dy, double x) {
  if (x < -20.0) {  // 4 x exp(x^2), in which the rest of erfcx is lost; it is infinite at -inf alone
    if (dy == 0.0) return dy * x;
    const double e = exp_quarter_square(x);
    return dy * e * e * (4.0 * x) * e * e;
  }
  if (!(x > 10.0)) return dy * (2.0 * math::fma(x, ::erfcx(x), -0.5 * two_over_sqrt_pi));
  const double s = 0.5 / x / x;
  double sum = 1.0;
  for (int n = 15; n > 1; --n) sum = math::fma(-(2 * n - 1) * s, sum, 1.0);  // 1 - 3s (1 - 5s (1 - …))
  return -dy / x / x * (0.5 * two_over_sqrt_pi * sum);
}

// dy sqrt(pi) / 2 exp(y^2), and exp(y^2) is erfcx(y) / erfc(y).
BARACUDA_SPECIAL double erfinv_slope(double dy, double x) {
  const double size = magnitude(x);
  if (!(size <= 1.0)) return numeric<double>::nan();
  return times_quotient(dy, 0.8862269254527580 * ::erfcx(magnitude(size < 1.0 ? ::erfinv(x) : 0.0)), 1.0 - size);
}
// dy sqrt(2 pi) exp(x^2 / 2), and exp(x^2 / 2) is erfcx(|x| / sqrt(2)) / (2 Phi(-|x|)).
BARACUDA_SPECIAL double ndtri_slope(double dy, double p) {
  if (!(p >= 0.0 && p <= 1.0)) return numeric<double>::nan();
  const double q = p < 0.5 ? p : 1.0 - p;
  const double y = q > 0.0 ? magnitude(::normcdfinv(p)) * sqrt_half : 0.0;
  return times_quotient(dy, 1.2533141373155003 * ::erfcx(y), q);
}
BARACUDA_SPECIAL double ndtr_slope(double dy, double x) {
  const double g = bell(x, 0.25);
  return dy * g * one_over_sqrt_two_pi * g;
}
// dy phi(x) / Phi(x); below 0 both have the factor exp(-x^2 / 2).
BARACUDA_SPECIAL double log_ndtr_slope(double dy, double x) {
  const double g = bell(x, 0.25), ratio = 0.5 * ::erfcx(magnitude(x) * sqrt_half);
  if (x < 0.0) return dy * (x < -1e10 ? -x : one_over_sqrt_two_pi / ratio);
  return dy * g * (one_over_sqrt_two_pi / (1.0 - ratio * g * g)) * g;
}

// dy times the derivative of order n of psi. Near 0 it is that of -1 / x, and far out that of log(x): there dy is
// multiplied factor by factor, so that nothing leaves the range unless the result does.
BARACUDA_D double times_polygamma(double dy, double x, int n) {
  const bool near = x != 0.0 && magnitude(x) < 1e-20, far = x > 1e30 && n > 0 && math::isfinite(x);
  if (!near && !far) return dy * derivative_of_psi(x, n);
  dy = (n % 2 ? 1.0 : -1.0) * dy;
  if (dy == 0.0) return n % 2 ? dy : math::copysign(1.0, x) * dy;  // k / x may be infinite
  dy /= x;
  for (int k = 1; k < n + (near ? 1 : 0); ++k) dy *= k / x;
  return dy;
}

// dy y exp(x), x >= 0: in one product while it can be, then root by root of the exponential, which leave the range only
// where the result does, of the smallest dy too.
BARACUDA_D double times_exp(double dy, double y, double x) {
  if (dy == 0.0) return dy * y;  // the exponential is finite, its roots may not be
  const double h = math::exp(x < 700.0 ? 0.5 * x : 0.25 * x);
  return x < 700.0 ? dy * (y * h * h) : dy * h * h * h * (y * h);
}
BARACUDA_SPECIAL double i0_slope(double dy, double x) {
  const double a = magnitude(x);
  if (math::isinf(x)) return dy * x;
  if (a < 1.0) return dy * (scaled_i1_over(a) * math::exp(a)) * x;
  return times_exp(dy, sign_of(x) * scaled_i1(a), a);
}
BARACUDA_SPECIAL double i1_slope(double dy, double x) {
  const double a = magnitude(x);
  return math::isinf(x) ? dy * a : times_exp(dy, scaled_i0(a) - scaled_i1_over(a), a);
}
// dy exp(-x) (I0(x) - I1(x)) and that less dy exp(-x) I1(x) / x, x >= 0.
BARACUDA_D double times_difference(double dy, double x) {
  if (x <= 8.0) {
    const double t = 0.25 * x * x;
    return dy * (math::exp(-x) * (polynomial(t, i0_near, 18) - 0.5 * x * polynomial(t, i1_near, 18)));
  }
  return dy * chebyshev(16.0 / x - 1.0, i0_i1_far, 30) / math::sqrt(x) / x;
}
BARACUDA_D double times_rest(double dy, double x) {
  if (x <= 8.0) {
    const double t = 0.25 * x * x;
    return dy * (math::exp(-x) * math::fma(-0.5 * (x + 1.0), polynomial(t, i1_near, 18), polynomial(t, i0_near, 18)));
  }
  const double u = 16.0 / x - 1.0;
  return dy * (chebyshev(u, i0_i1_far, 30) - chebyshev(u, i1_far, 28)) / math::sqrt(x) / x;
}
BARACUDA_SPECIAL double i0e_slope(double dy, double x) {
  return x == 0.0 ? dy * 0.0 : -sign_of(x) * times_difference(dy, magnitude(x));
}
BARACUDA_SPECIAL double i1e_slope(double dy, double x) { return times_rest(dy, magnitude(x)); }

// (cos(t) - sin(t) / t) / t^2 near 0: the sum of (-1)^k t^(2k - 2) 2k / (2k + 1)!
BARACUDA_D double bend(double t) {
  const double s = t * t;
  double sum = 0.0, term = -1.0 / 6.0;
  for (int k = 1; k < 13; ++k) {
    sum = math::fma(2.0 * k, term, sum);
    term *= -s / ((2 * k + 2) * (2 * k + 3));
  }
  return sum;
}
// dy c x, |c| < 4 and x small: x goes last, so that it may be subnormal, unless dy is near the end of the range.
BARACUDA_D double times_small(double dy, double c, double x) { return magnitude(dy) < 1e300 ? dy * c * x : dy * x * c; }
BARACUDA_SPECIAL double sinc_slope(double dy, double x) {
  if (x == 0.0) return dy * 0.0;
  if (magnitude(x) < 1e-20) return times_small(dy, -pi * pi / 3.0, x);
  return dy * (magnitude(x) < 0.5 ? pi * pi * x * bend(pi * x) : (math::cospi(x) - math::sinpi(x) / (pi * x)) / x);
}
BARACUDA_SPECIAL double spherical_j0_slope(double dy, double x) {
  if (x == 0.0 || math::isinf(x)) return dy * 0.0;
  if (magnitude(x) < 1e-20) return times_small(dy, -1.0 / 3.0, x);
  if (magnitude(x) < 1.5) return dy * (x * bend(x));
  double sine, cosine;
  math::sincos(x, &sine, &cosine);
  return dy * ((cosine - sine / x) / x);
}

}  // namespace baracuda::special

namespace baracuda::gradient {

#define BARACUDA_IN_DOUBLE(Name, formula)                                                 \
  template <class T> struct Name {                                                        \
    using A = acc_t<T>;                                                                   \
    static BARACUDA_D A value(A d, A a, [[maybe_unused]] const Coefficients<A>& k = {}) { \
      const double dy = d, x = a;                                                         \
      return static_cast<A>(formula);                                                     \
    }                                                                                     \
  };

BARACUDA_IN_DOUBLE(Erfinv, special::erfinv_slope(dy, x))
BARACUDA_IN_DOUBLE(Erfcx, special::erfcx_slope(dy, x))
BARACUDA_IN_DOUBLE(Ndtr, special::ndtr_slope(dy, x))
BARACUDA_IN_DOUBLE(Ndtri, special::ndtri_slope(dy, x))
BARACUDA_IN_DOUBLE(LogNdtr, special::log_ndtr_slope(dy, x))
BARACUDA_IN_DOUBLE(Lgamma, special::times_polygamma(dy, x, 0))
BARACUDA_IN_DOUBLE(Digamma, special::times_polygamma(dy, x, 1))
BARACUDA_IN_DOUBLE(Polygamma, special::times_polygamma(dy, x, static_cast<int>(k.a) + 1))
BARACUDA_IN_DOUBLE(I0, special::i0_slope(dy, x))
BARACUDA_IN_DOUBLE(I0e, special::i0e_slope(dy, x))
BARACUDA_IN_DOUBLE(I1, special::i1_slope(dy, x))
BARACUDA_IN_DOUBLE(I1e, special::i1e_slope(dy, x))
BARACUDA_IN_DOUBLE(Sinc, special::sinc_slope(dy, x))
BARACUDA_IN_DOUBLE(SphericalBesselJ0, special::spherical_j0_slope(dy, x))

#undef BARACUDA_IN_DOUBLE

}  // namespace baracuda::gradient
