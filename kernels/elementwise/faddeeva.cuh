#pragma once
// faddeeva     w(z) = exp(-z²) erfc(-iz) and its derivative, in double whatever the parts of z are.
//
// In the upper half plane by the trapezoidal rule for (i / π) ∫ exp(-t²) / (z - t) dt with nodes a half apart, whose error
// is 1e-17 once the poles of exp(-z²) / (1 ± exp(-4πiz)) that the rule misses are added; of the two sets of nodes, at
// multiples of 1/2 and between them, the one that stays away from z (Al Azah and Chandler-Wilde 2021). In the lower one
// w(z) = 2 exp(-z²) - w(-z), whose zeros leave no relative bound there. Nodes are added from 0 on.
#include "elementwise/complex/exponential.cuh"

namespace baracuda::faddeeva {

using C = complex<double>;
constexpr double pi = 3.141592653589793, one_over_sqrt_pi = 0.5641895835477563;
constexpr double calm = 2.0 * pi;       // beyond this imaginary part the missing poles are below 1e-17
constexpr double remote = 134217728.0;  // beyond it w(z) is i / (√π z)

// exp(-t²) / (2π) at t = 0, 1/2, … 6, of which 0 counts half as each node counts on both sides, and at t = 1/4, … 25/4.
static __constant__ double at_whole[13] = {0.07957747154594767,    0.12394999430965296,    0.05854983152431916,
                                           0.016774807587073417,   0.0029150244650281935,  0.000307241318192835,
                                           1.9641280346397437e-05, 7.615750862323311e-07,  1.7910529328280185e-08,
                                           2.554799797725798e-10,  2.2103349154917858e-12, 1.1598773137396176e-14,
                                           3.691635240477673e-17};
static __constant__ double at_half[13] = {
    0.14951223255186183,    0.09068375304478943,   0.03336068839344621,    0.007443775743891518, 0.001007405498649386,
    8.269287897034292e-05,  4.117036018831961e-06, 1.2432371522416443e-07, 2.27706827335162e-09, 2.529594356600453e-11,
    1.7044272703959557e-13, 6.965604687593463e-16, 1.7266007781169686e-18};

// exp(-z²) = exp(power) turn, the power of any size.
struct Gaussian {
  double power;
  C turn;
};
BARACUDA_D Gaussian gaussian(C z) {
  const double x = z.re, y = z.im, a = 2.0 * x * y, rest = math::fma(2.0 * x, y, -a);
  const C turn = math::conj(math::plain_product(math::cis(a), math::cis(math::isfinite(rest) ? rest : 0.0)));
  if (!(math::abs(x) < 1e150 && math::abs(y) < 1e150)) return {(y - x) * (y + x), turn};
  const double xx = x * x, yy = y * y, size = yy - xx, part = size - yy;
  const double more = (yy - (size - part)) - (xx + part) + (math::fma(y, y, -yy) - math::fma(x, x, -xx));
  const double power = size + more, back = power - size;
  const double low = (size - (power - back)) + (more - back);
  return {power, math::abs(power) < 10000.0 ? turn * (1.0 + low) : turn};
}

// Of z = x + iy with x, y >= 0 and finite, below `remote`: w(z), or its derivative.
template <bool SLOPE> BARACUDA_D C upper(double x, double y) {
  const double phase = 2.0 * x - math::floor(2.0 * x);
  const bool whole = y < x && phase >= 0.25 && phase <= 0.75;
  const double* weight = whole ? at_whole : at_half;
  double re = 0.0, im = 0.0, t = whole ? 0.0 : 0.25;
#pragma unroll 1
  for (int k = 0; k < 13; ++k, t += 0.5) {
    const double u = x - t, v = x + t, yy = y * y, a = math::fma(u, u, yy), b = math::fma(v, v, yy);
    if constexpr (SLOPE) {  // Σ 1 / (z - t)² + 1 / (z + t)²
      const double ia = 1.0 / a, ib = 1.0 / b;
      const C p = {u * ia, -y * ia}, q = {v * ib, -y * ib};
      re = math::fma(weight[k], (p.re - p.im) * (p.re + p.im) + (q.re - q.im) * (q.re + q.im), re);
      im = math::fma(weight[k], 2.0 * (p.re * p.im + q.re * q.im), im);
    } else {  // Σ 1 / (z - t) + 1 / (z + t)
      const double share = 2.0 * weight[k] / (a * b), size = math::fma(x, x, yy);
      re = math::fma(share, size - t * t, re);
      im = math::fma(share, size + t * t, im);
    }
  }
  C sum = SLOPE ? C{im, -re} : C{y * im, x * re};  // times i, or -i
  if (y < calm) {
    const Gaussian g = gaussian({x, y});
    const double sign = whole ? -1.0 : 1.0, turns = 2.0 * phase;
    C q;  // ± exp(-4πiz)
    sincospi(-turns, &q.im, &q.re);
    q = q * (sign * math::exp(4.0 * pi * y));
    const C pole = C{2.0, 0.0} / C{1.0 + q.re, q.im}, one = g.turn * math::exp(g.power);
    C more = pole;
    if constexpr (SLOPE) {  // of 2 exp(-z²) / (1 + q), q' = -4πi q
      const C share = pole * q * pole;
      more = C{-2.0 * x, -2.0 * y} * pole + C{-2.0 * pi * share.im, 2.0 * pi * share.re};
    }
    sum = sum + one * more;
  }
  return sum;
}

// The mirror image of f in the imaginary axis.
BARACUDA_D C mirrored(C f, bool turned, double sign) { return turned ? C{sign * f.re, -sign * f.im} : f; }

// w(z) for Im z >= 0.
BARACUDA_D C above(C z) {
  if (math::isinf(z.re) || math::isinf(z.im)) return {0.0, 0.0};
  const double x = math::abs(z.re);
  if (max(x, z.im) > remote) return math::times_i(C{one_over_sqrt_pi, 0.0} / z);
  return mirrored(upper<false>(x, z.im), z.re < 0.0, 1.0);
}

static __device__ __noinline__ C wofz(C z) {
  if (math::isnan(z)) return {numeric<double>::nan(), z.re == 0.0 ? 0.0 : numeric<double>::nan()};
  if (z.im >= 0.0) return above(z);
  const Gaussian g = gaussian(z);
  const C rest = above(-z);
  if (g.power < -800.0) return -rest;
  if (z.re == 0.0) return {2.0 * math::times_exp(g.power, C{1.0, 0.0}).re - rest.re, 0.0};
  return math::times_exp(g.power, g.turn, 2.0) - rest;
}
BARACUDA_D complex<float> wofz(complex<float> z) {
  const C w = wofz(C{z.re, z.im});
  return {static_cast<float>(w.re), static_cast<float>(w.im)};
}

// w'(z) = m 2^e.
struct Derivative {
  C m;
  int e;
};
BARACUDA_D Derivative slope_above(C z) {
  if (math::isinf(z.re) || math::isinf(z.im)) return {{0.0, 0.0}, 0};
  const double x = math::abs(z.re);
  if (max(x, z.im) > remote) {  // -i / (√π z²)
    const int e = math::exponent(math::larger_part(z));
    const C s = math::scaled(z, -e);
    return {C{0.0, -one_over_sqrt_pi} / (s * s), -2 * e};
  }
  return {mirrored(upper<true>(x, z.im), z.re < 0.0, -1.0), 0};
}
static __device__ __noinline__ Derivative slope(C z) {
  if (math::isnan(z)) return {{numeric<double>::nan(), numeric<double>::nan()}, 0};
  if (z.im >= 0.0) return slope_above(z);
  const Derivative rest = slope_above(-z);
  const Gaussian g = gaussian(z);
  if (g.power < -800.0) return rest;
  const int e = math::exponent(math::larger_part(z));
  const C turn = g.turn * (math::scaled(z, -e) * -4.0);
  // exp(power) as a square whose exponent is kept apart; a power above 2100 counts as 2100, which stays finite so that a
  // dy of 0 gives 0 and whose product with any other dy overflows.
  if (g.power > 100.0) {
    const double near = min(g.power, 1400.0), h = math::exp(0.5 * near), last = math::exp(min(g.power - near, 700.0));
    const int k = math::exponent(h), l = math::exponent(last);
    const double part = math::scaled(h, -k);
    return {turn * (part * part * math::scaled(last, -l)), e + 2 * k + l};
  }
  const C far = math::scaled(turn * math::exp(g.power), e);
  return {far + (rest.e == 0 ? rest.m : math::scaled(rest.m, rest.e)), 0};
}

}  // namespace baracuda::faddeeva
