#pragma once
// combinatorics   beta, its logarithm, rising factorials, binomials, Hurwitz' zeta, exponential integrals; in double.
#include "elementwise/pairs.cuh"
#include "elementwise/series.cuh"

namespace baracuda::special {

BARACUDA_D double gamma_sign(double x) {
  return x < 0.0 && math::floor(x) != 2.0 * math::floor(0.5 * math::floor(x)) ? -1.0 : 1.0;
}

// log |B(a, b)|; of two large numbers without the cancellation of logarithms of gamma.
BARACUDA_D double log_beta(double a, double b) {
  const double low = math::abs(a) < math::abs(b) ? a : b, high = math::abs(a) < math::abs(b) ? b : a;
  if (!(low > 0.0) || high < 10.0) return ::lgamma(low) + ::lgamma(high) - ::lgamma(low + high);
  if (math::isinf(high)) return math::isinf(low) ? -high : ::lgamma(low) - low * high;
  const double total = low + high, share = low / high;
  const double rest = stirling(high) - stirling(total);
  if (low >= 10.0) {
    const double first = math::fma(-0.5, math::log(high), 0.9189385332046727) + (stirling(low) + rest);
    return first + math::fma(low - 0.5, math::log(low / total), -high * math::log1p(share));
  }
  return ::lgamma(low) + (math::fma(-low, math::log(total), low - (high - 0.5) * math::log1p(share)) + rest);
}
BARACUDA_SPECIAL double betaln(double a, double b) { return log_beta(a, b); }
// As gammas where they are in the range, else as an exponential.
BARACUDA_SPECIAL double beta(double a, double b) {
  const double total = a + b;
  if (math::abs(a) < 170.0 && math::abs(b) < 170.0 && math::abs(total) < 170.0) {
    const double low = math::abs(a) < math::abs(b) ? a : b, high = math::abs(a) < math::abs(b) ? b : a;
    return ::tgamma(low + 0.0) * (::tgamma(high) / ::tgamma(total));  // the pole at -0 is that at 0
  }
  return gamma_sign(a) * gamma_sign(b) * gamma_sign(total) * math::exp(log_beta(a, b));
}

// gamma(z + m) / gamma(z): a product for a few whole steps, gammas where they are in the range, else an exponential.
BARACUDA_SPECIAL double poch(double z, double m) {
  if (m == math::floor(m) && m >= 0.0 && m <= 32.0) {
    double y = 1.0;
    for (double k = 0.0; k < m; k += 1.0) y *= z + k;
    return y;
  }
  const double end = z + m;
  if (end <= 0.0 && end == math::floor(end)) {
    return z <= 0.0 && z == math::floor(z) ? numeric<double>::nan() : numeric<double>::infinity();
  }
  if (z <= 0.0 && z == math::floor(z)) return 0.0;
  if (math::abs(z) < 170.0 && math::abs(end) < 170.0) return ::tgamma(end) / ::tgamma(z);
  if (z >= 10.0 && end >= 10.0) {  // (z - 1/2) log(1 + m / z) + m log(end) - m
    const double log = math::fma(z - 0.5, math::log1p(m / z), m * (math::log(end) - 1.0));
    return math::exp(log + (stirling(end) - stirling(z)));
  }
  return gamma_sign(z) * gamma_sign(end) * math::exp(::lgamma(end) - ::lgamma(z));
}

// n! / (k! (n - k)!): a product for a few steps from either end, else 1 / ((n + 1) B(n - k + 1, k + 1)).
BARACUDA_SPECIAL double comb(double n, double k) {
  if (n != n || k != k) return numeric<double>::nan();
  if (k < 0.0 || n < k) return 0.0;
  const double other = n - k, few = k == math::floor(k) && (k <= other || other != math::floor(other)) ? k : other;
  if (few == math::floor(few) && few <= 64.0) {
    double y = 1.0;
    for (double i = 1.0; i <= few; i += 1.0) y *= (n - few + i) / i;
    return n == math::floor(n) && y < 9007199254740992.0 ? math::rint(y) : y;
  }
  return math::exp(-math::log1p(n) - log_beta(other + 1.0, k + 1.0));
}

// zeta(s, q) = the sum of (q + k)^-s, s > 1 and q > 0, by Euler's and Maclaurin's formula from s + 12 on; a large s ends
// the sum before.
BARACUDA_D double hurwitz(double s, double q) {
  double sum = 0.0;
  if (math::isinf(q)) return 0.0;
  for (; q < s + 12.0; q += 1.0) {
    const double term = math::pow(q, -s);
    sum += term;
    if (!(term > 1e-18 * sum)) return sum;
  }
  const double w = 1.0 / q, t = w * w;
  double term = 0.5 * s * w, tail = 0.5 + bernoulli[0] * term;
  for (int k = 2; k <= 12; ++k) {
    term *= (s + (2 * k - 3.0)) / (2 * k - 1) * ((s + (2 * k - 2.0)) / (2 * k)) * t;
    tail = math::fma(bernoulli[k - 1], term, tail);
  }
  const double power = math::pow(q, -s);
  if (power < 1e-290) return sum + math::pow(q, 1.0 - s) * math::fma(tail, w, 1.0 / (s - 1.0));
  return sum + power * (tail + q / (s - 1.0));
}
// For q < 0 and a whole s the terms above 0 and those below, which are finitely many: all but those beyond q.
BARACUDA_SPECIAL double zeta_of(double q, double s) {
  if (s != s || q != q || s < 1.0) return numeric<double>::nan();
  if (s == 1.0) return numeric<double>::infinity();
  const double whole = math::floor(q);
  if (q <= 0.0 && q == whole) return math::isinf(q) ? numeric<double>::nan() : numeric<double>::infinity();
  if (q < 0.0 && (s != math::floor(s) || math::isinf(s))) return numeric<double>::nan();
  const double sign = s == 2.0 * math::floor(0.5 * s) ? 1.0 : -1.0;
  double from = q > 0.0 ? q : q - whole, weight = 1.0, sum = 0.0;
#pragma unroll 1
  for (int part = q > 0.0 ? 2 : 0; part < 3; ++part) {
    sum = math::fma(weight, hurwitz(s, from), sum);
    from = part == 0 ? math::ceil(q) - q : 1.0 - q;
    weight = part == 0 ? sign : -sign;
  }
  return sum;
}

// E_n(x), the integral of exp(-x t) / t^n from 1 on, n whole: by its power series up to 1, then by a continued fraction.
BARACUDA_D double expn_of(double x, double n) {
  if (!(x >= 0.0) || !(n >= 0.0) || n != math::floor(n)) return numeric<double>::nan();
  if (x == 0.0) return n < 2.0 ? numeric<double>::infinity() : 1.0 / (n - 1.0);
  const double h = math::exp(-0.5 * x);
  if (n == 0.0) return h * (h / x);
  if (math::isinf(x) || math::isinf(n)) return 0.0;
  if (x > 1.0) {
    double b = x + n, c = 1e300, d = 1.0 / b, y = d;
    for (double i = 1.0; i < 2000.0; i += 1.0) {
      const double a = -i * (n - 1.0 + i);
      b += 2.0;
      d = 1.0 / math::fma(a, d, b);
      c = b + a / c;
      const double change = c * d;
      y *= change;
      if (math::abs(change - 1.0) < 1e-16) break;
    }
    return y * h * h;
  }
  const double rest =
      exponential_sum(-x, 24, [n](double term, int k) { return k == n - 1.0 ? 0.0 : term / (k + 1.0 - n); });
  const double sum = (n == 1.0 ? 0.0 : 1.0 / (n - 1.0)) - rest;
  if (n > 24.0) return sum;
  double psi = -0.5772156649015329 - math::log(x), power = 1.0;
  for (double k = 1.0; k < n; k += 1.0) psi += 1.0 / k, power *= -x / k;
  return math::fma(power, psi, sum);
}
BARACUDA_SPECIAL double expn(double x, double n) { return expn_of(x, n); }

// ---- gradients ------------------------------------------------------------------------------------------------------

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

}  // namespace baracuda::special

namespace baracuda {

BARACUDA_PAIR(Beta, beta(a, b))
BARACUDA_PAIR(Betaln, betaln(a, b))
BARACUDA_PAIR(Poch, poch(a, b))
BARACUDA_PAIR(Comb, comb(a, b))
BARACUDA_PAIR(Zeta, zeta_of(a, b))
BARACUDA_PAIR(Expn, expn(a, b))

namespace partial {

BARACUDA_PARTIALS(Beta, beta_slope(dy, a, b), beta_slope(dy, b, a))
BARACUDA_PARTIALS(Betaln, betaln_slope(dy, a, b), betaln_slope(dy, b, a))
BARACUDA_PARTIALS(Poch, poch_by_start(dy, a, b), poch_by_steps(dy, a, b))
BARACUDA_PARTIAL_BY_A(Zeta, zeta_slope(dy, a, b))
BARACUDA_PARTIAL_BY_A(Expn, expn_slope(dy, a, b))

}  // namespace partial
}  // namespace baracuda
