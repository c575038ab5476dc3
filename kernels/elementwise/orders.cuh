#pragma once
// orders     Bessel functions J of whole orders, and spherical Legendre functions, by recurrences over the order; in double.
#include "elementwise/bessel.cuh"
#include "elementwise/incomplete.cuh"

namespace baracuda::special {

constexpr double order_limit = 65536.0, huge = 1e150;  // numbers beyond `huge` are scaled, so as not to overflow

BARACUDA_D bool is_odd(double n) { return n != 2.0 * math::floor(0.5 * n); }

// J of order n >= 0, x > 0: its power series for a small x, upwards from orders 0 and 1 for n <= x, else downwards from
// an order that has vanished, to the larger of J0 and J1.
BARACUDA_D double j_positive(double n, double x) {
  if (0.25 * x * x <= n + 1.0) {
    const double t = 0.25 * x * x;
    double sum = 1.0, term = 1.0;
#pragma unroll 1
    for (double k = 1.0; k < 40.0; k += 1.0) {
      term *= -t / (k * (n + k));
      sum += term;
    }
    return gamma_density(n, 0.5 * x) * math::exp(0.5 * x) * sum;
  }
  const double first = j0_of(x), second = j1_of(x);
  if (n == 0.0) return first;
  if (n <= x) {
    double below = first, here = second;
#pragma unroll 1
    for (double k = 1.0; k < n; k += 1.0) {
      const double next = math::fma(2.0 * k / x, here, -below);
      below = here, here = next;
    }
    return here;
  }
  double above = 0.0, here = 1.0, wanted = 0.0;
#pragma unroll 1
  for (double k = n + math::floor(math::sqrt(200.0 * n)) + 2.0; k > 0.0; k -= 1.0) {
    const double next = math::fma(2.0 * k / x, here, -above);
    above = here, here = next;  // of orders k and k - 1
    if (k - 1.0 == n) wanted = here;
    if (math::abs(here) > huge) here /= huge, above /= huge, wanted /= huge;
  }
  return math::abs(first) > math::abs(second) ? wanted / here * first : wanted / above * second;
}
BARACUDA_SPECIAL double bessel_jn(double x, double n) {
  const double order = math::abs(n), size = math::abs(x);
  if (x != x || n != math::floor(n) || !(order <= order_limit)) return numeric<double>::nan();
  if (math::isinf(x)) return 0.0;
  const double y = size == 0.0 ? (order == 0.0 ? 1.0 : 0.0) : j_positive(order, size);
  return is_odd(order) && (x < 0.0) != (n < 0.0) ? -y : y;
}
BARACUDA_D double jn_slope(double dy, double x, double n) {
  return dy * (0.5 * (bessel_jn(x, n - 1.0) - bessel_jn(x, n + 1.0)));
}

// sqrt((2 n + 1) (n - m)! / (4 pi (n + m)!)) P_n^m(cos(theta)), with the sign (-1)^m of Condon and Shortley: from degree m
// upwards, scaled where a high power of a sine would vanish.
BARACUDA_SPECIAL double sph_legendre(double theta, double n, double m) {
  const double order = math::abs(m);
  if (!math::isfinite(theta) || n != math::floor(n) || m != math::floor(m) || !(n >= 0.0 && n <= order_limit)) {
    return numeric<double>::nan();
  }
  if (!(order <= n)) return order > n ? 0.0 : numeric<double>::nan();
  double sine, x, here = 0.28209479177387814, below = 0.0;  // 1 / sqrt(4 pi)
  math::sincos(theta, &sine, &x);
  int scale = 0;
#pragma unroll 1
  for (double k = 1.0; k <= order; k += 1.0) {
    here *= -math::abs(sine) * math::sqrt(1.0 + 0.5 / k);
    if (math::abs(here) < 1.0 / huge) here *= huge, ++scale;
  }
  double last = 0.0;
#pragma unroll 1
  for (double k = order + 1.0; k <= n; k += 1.0) {
    const double factor = math::sqrt((2.0 * k - 1.0) / (k - order) * ((2.0 * k + 1.0) / (k + order)));
    const double next = factor * math::fma(x, here, -last * below);
    below = here, here = next, last = 1.0 / factor;
    if (scale > 0 && math::abs(here) > 1.0) here /= huge, below /= huge, --scale;
  }
  for (; scale > 0 && here != 0.0; --scale) here /= huge;
  return m < 0.0 && is_odd(order) ? -here : here;
}
// By theta: sqrt((n - m) (n + m + 1)) of order m + 1 less sqrt((n + m) (n - m + 1)) of order m - 1, over two.
BARACUDA_D double sph_legendre_slope(double dy, double theta, double n, double m) {
  if (math::abs(m) > n) return dy * 0.0;
  const double above = math::sqrt((n - m) * (n + m + 1.0)) * sph_legendre(theta, n, m + 1.0);
  const double below = math::sqrt((n + m) * (n - m + 1.0)) * sph_legendre(theta, n, m - 1.0);
  const double slope = 0.5 * (above - below);
  return dy * (math::sin(theta) < 0.0 ? -slope : slope);
}

}  // namespace baracuda::special

namespace baracuda {

BARACUDA_PAIR(BesselJn, bessel_jn(a, b))
BARACUDA_TRIPLE(SphLegendreP, sph_legendre(a, b, c))

namespace partial {

BARACUDA_PARTIAL_BY_A(BesselJn, jn_slope(dy, a, b))
BARACUDA_PARTIAL_BY_A(SphLegendreP, sph_legendre_slope(dy, a, b, c))

}  // namespace partial
}  // namespace baracuda
