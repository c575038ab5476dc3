#pragma once
// incomplete   the regularised incomplete gamma and beta functions; in double.
//
// Series and continued fractions, whose terms grow with the root of a; for a large a near x Temme's uniform expansion.
#include "elementwise/combinatorics.cuh"

namespace baracuda::special {

// ---- the incomplete gamma function ----------------------------------------------------------------------------------

// The series in eta of the first five coefficients of Temme's expansion, one after the other.
constexpr int temme_terms[5] = {19, 16, 11, 8, 3};
static __constant__ double temme[57] = {
    -0.3333333333333333,     0.08333333333333333,     -0.014814814814814815,   0.0011574074074074073,
    0.0003527336860670194,   -0.0001787551440329218,  3.919263178522438e-05,   -2.185448510679992e-06,
    -1.85406221071516e-06,   8.296711340953087e-07,   -1.7665952736826078e-07, 6.707853543401498e-09,
    1.0261809784240309e-08,  -4.382036018453353e-09,  9.14769958223679e-10,    -2.5514193994946248e-11,
    -5.830772132550426e-11,  2.4361948020667415e-11,  -5.0276692801141755e-12, -0.001851851851851852,
    -0.003472222222222222,   0.0026455026455026454,   -0.0009902263374485596,  0.00020576131687242798,
    -4.018775720164609e-07,  -1.8098550334489977e-05, 7.64916091608111e-06,    -1.6120900894563446e-06,
    4.647127802807434e-09,   1.378633446915721e-07,   -5.752545603517705e-08,  1.1951628599778148e-08,
    -1.7543241719747647e-11, -1.0091543710600413e-09, 4.162792991842583e-10,   0.004133597883597883,
    -0.0026813271604938273,  0.0007716049382716049,   2.0093878600823047e-06,  -0.0001073665322636516,
    5.2923448829120125e-05,  -1.2760635188618728e-05, 3.423578734096138e-08,   1.3721957309062934e-06,
    -6.298992138380055e-07,  1.4280614206064242e-07,  0.0006494341563786008,   0.00022947209362139917,
    -0.0004691894943952557,  0.00026772063206283885,  -7.561801671883977e-05,  -2.396505113867297e-07,
    1.1082654115347302e-05,  -5.6749528269915965e-06, -0.0008618882909167117,  0.0007840392217200666,
    -0.0002990724803031902};
constexpr double temme_from = 2000.0;

// log(gamma(1 + a)) / a for |a| <= 1/2, in powers of 2 a, without the part of log(1 + a).
static __constant__ double lgamma_near[24] = {
    0.42278433509846713,     0.1612335167120566,     -0.016838075263299526,   0.0025726010534730683,
    -0.0004615969392921239,  9.032844783567256e-05,  -1.863677987036654e-05,  3.981793162055762e-06,
    -8.716982751796095e-07,  1.9425295464482697e-07, -4.3873278232754775e-08, 1.0013287528585672e-08,
    -2.3045619643110174e-09, 5.340412111249032e-10,  -1.2446527139359942e-10, 2.914893807000089e-11,
    -6.852743804483e-12,     1.6174456186420312e-12, -3.853977200819227e-13,  9.152523551757897e-14,
    -2.019434272939525e-14,  4.815927596447066e-15,  -1.7592389019393816e-15, 4.219692385970071e-16};
BARACUDA_D double lgamma_above_1(double a) {
  return math::fma(a, polynomial(2.0 * a, lgamma_near, 24), -math::log1p(a));
}

// x^a exp(-x) / gamma(a + 1)
BARACUDA_D double gamma_density(double a, double x) {
  if (a >= 10.0) {
    const double d = (x - a) / a;
    return math::exp(math::fma(-a, log_gap(d, x / a), -stirling(a))) / (math::sqrt(2.0 * pi) * math::sqrt(a));
  }
  if (x > 2000.0) return 0.0;  // where x^a may leave the range
  const double h = math::exp(-0.5 * x);
  return math::pow(x, a) * h / ::tgamma(a + 1.0) * h;
}
// gamma(a, x) / gamma(a), the lower one, for x up to about a.
BARACUDA_D double gamma_series(double a, double x) {
  double sum = 1.0, term = 1.0, end = a;
#pragma unroll 1
  for (int k = 0; k < 3000 && term > 1e-17 * sum; ++k) {
    end += 1.0;
    term *= x / end;
    sum += term;
  }
  return gamma_density(a, x) * sum;
}
// The upper one for small x, where the lower one may be nearly 1.
BARACUDA_D double gamma_series_upper(double a, double x) {
  const double sum = exponential_sum(-x, 60, [a](double term, int k) { return term / (a + k); });
  const double log = a * math::log(x);
  const double first = -math::expm1(log - lgamma_above_1(a)),
               gamma = a < 0.5 ? math::exp(lgamma_above_1(a)) : ::tgamma(a + 1.0);
  return (a < 0.5 ? first : 1.0 - math::exp(log) / gamma) - a * sum * math::exp(log) / gamma;
}
// The upper one, for x from about a on and above 1.
BARACUDA_D double gamma_fraction(double a, double x) {
  double b = x + 1.0 - a, c = 1e300, d = 1.0 / b, y = d;
#pragma unroll 1
  for (double i = 1.0; i < 3000.0; i += 1.0) {
    const double n = i * (a - i);
    b += 2.0;
    d = 1.0 / math::fma(n, d, b);
    c = b + n / c;
    const double change = c * d;
    y *= change;
    if (math::abs(change - 1.0) < 1e-16) break;
  }
  return gamma_density(a, x) * a * y;
}
// Temme 1979: erfc of eta sqrt(a / 2) over 2, and a rest that is the same for both functions up to its sign.
BARACUDA_D double gamma_uniform(double a, double d, bool upper) {
  const double gap = log_gap(d), eta = math::copysign(math::sqrt(2.0 * gap), d), w = 1.0 / a;
  double rest = 0.0, scale = 1.0;
  const double* c = temme;
#pragma unroll
  for (int k = 0; k < 5; ++k) {
    rest = math::fma(scale, polynomial(eta, c, temme_terms[k]), rest);
    c += temme_terms[k];
    scale *= w;
  }
  rest *= math::exp(-a * gap) / (math::sqrt(2.0 * pi) * math::sqrt(a));
  const double side = (upper ? eta : -eta) * math::sqrt(0.5) * math::sqrt(a);
  return math::fma(0.5, ::erfc(side), upper ? rest : -rest);
}
BARACUDA_D double incomplete_gamma(double a, double x, bool upper) {
  if (!(a >= 0.0 && x >= 0.0) || (a == 0.0 && x == 0.0) || (math::isinf(a) && math::isinf(x))) {
    return numeric<double>::nan();
  }
  if (x == 0.0 || math::isinf(a)) return upper ? 1.0 : 0.0;
  if (a == 0.0 || math::isinf(x)) return upper ? 0.0 : 1.0;
  const double d = (x - a) / a;
  if (a >= temme_from && math::abs(d) < 0.3) return gamma_uniform(a, d, upper);
  if (x > 1.1 && x > a) {
    const double y = gamma_fraction(a, x);
    return upper ? y : 1.0 - y;
  }
  if (upper && x <= 1.1 && (x <= 0.5 ? -0.4 / math::log(x) >= a : 1.1 * x >= a)) return gamma_series_upper(a, x);
  const double y = gamma_series(a, x);
  return upper ? 1.0 - y : y;
}
BARACUDA_SPECIAL double gammainc(double x, double a) { return incomplete_gamma(a, x, false); }
BARACUDA_SPECIAL double gammaincc(double x, double a) { return incomplete_gamma(a, x, true); }

// ---- the incomplete beta function -----------------------------------------------------------------------------------

// x^a y^b / B(a, b), y = 1 - x.
BARACUDA_D double beta_density(double a, double b, double x, double y) {
  const double total = a + b;
  if (a >= 10.0 && b >= 10.0) {
    const double shift = x * b - y * a;  // of the mean: (x - a / total) total
    const double log = -a * log_gap(shift / a, x / a * total) - b * log_gap(-shift / b, y / b * total);
    return math::exp(log + (stirling(total) - stirling(a) - stirling(b))) * math::sqrt(a / total * b / (2.0 * pi));
  }
  const double log = a * math::log(x) + b * (x < 0.5 ? math::log1p(-x) : math::log(y));
  return math::exp(log - log_beta(a, b));
}
// By a continued fraction, for x below about the mean.
BARACUDA_D double beta_fraction(double a, double b, double x, double y) {
  double c = 1.0, d = 1.0 / (1.0 - (a + b) * x / (a + 1.0)), value = d;
#pragma unroll 1
  for (double m = 1.0; m < 20000.0; m += 1.0) {
    const double even = m / (a + 2.0 * m - 1.0) * ((b - m) / (a + 2.0 * m)) * x;
    d = 1.0 / math::fma(even, d, 1.0);
    c = 1.0 + even / c;
    value *= d * c;
    const double odd = -(a + m) / (a + 2.0 * m) * ((a + b + m) / (a + 2.0 * m + 1.0)) * x;
    d = 1.0 / math::fma(odd, d, 1.0);
    c = 1.0 + odd / c;
    const double change = d * c;
    value *= change;
    if (math::abs(change - 1.0) < 1e-16) break;
  }
  return beta_density(a, b, x, y) * value / a;
}
BARACUDA_SPECIAL double betainc(double x, double a, double b) {
  if (!(a >= 0.0 && b >= 0.0 && x >= 0.0 && x <= 1.0) || (a == 0.0 && b == 0.0)) return numeric<double>::nan();
  if (math::isinf(a) || math::isinf(b)) return numeric<double>::nan();
  if (x == 0.0 || b == 0.0) return a == 0.0 ? 1.0 : 0.0;
  if (x == 1.0 || a == 0.0) return 1.0;
  const bool above = x > (a + 1.0) / (a + b + 2.0);
  const double y = above ? beta_fraction(b, a, 1.0 - x, x) : beta_fraction(a, b, x, 1.0 - x);
  return above ? 1.0 - y : y;
}

// ---- gradients ------------------------------------------------------------------------------------------------------

// What a density of the form t^(own - 1) … is at t = 0, times dy: `finite` for own = 1.
BARACUDA_D double at_end(double dy, double own, double finite) {
  return own > 1.0 ? 0.0 * dy : own == 1.0 ? finite : dy * numeric<double>::infinity();
}
BARACUDA_SPECIAL double betainc_slope(double dy, double x, double a, double b) {
  if (!(a > 0.0 && b > 0.0 && x >= 0.0 && x <= 1.0) || math::isinf(a) || math::isinf(b)) return numeric<double>::nan();
  if (x == 0.0) return at_end(dy, a, dy * b);
  if (x == 1.0) return at_end(dy, b, dy * a);
  return times_quotient(dy, beta_density(a, b, x, 1.0 - x), x) / (1.0 - x);
}

}  // namespace baracuda::special

namespace baracuda {

BARACUDA_TRIPLE(Betainc, betainc(a, b, c))

namespace partial {

BARACUDA_PARTIAL_BY_A(Betainc, betainc_slope(dy, a, b, c))

}  // namespace partial
}  // namespace baracuda
