#pragma once
// special    the special functions of unary kinds: F<T>::value(x, k) as in functors.cuh.
//
// All compute in double, whatever T is, and round once; each (BARACUDA_SPECIAL) is called, not inlined, so that a chunk
// of several elements has its code once. None calls another: a call in a call would keep registers in memory.
#include <baracuda/math.cuh>
#include "elementwise/normal.cuh"

#define BARACUDA_SPECIAL static __device__ __noinline__

namespace baracuda::special {

constexpr double pi = 3.141592653589793, sqrt_half = 0.7071067811865476;
constexpr double two_over_sqrt_pi = 1.1283791670955126, one_over_sqrt_two_pi = 0.3989422804014327;

BARACUDA_D double polynomial(double x, const double* c, int n) {
  double sum = c[n - 1];
  for (int k = n - 2; k >= 0; --k) sum = math::fma(sum, x, c[k]);
  return sum;
}
// c[0] + c[1] T1(x) + …, by Clenshaw's recurrence.
BARACUDA_D double chebyshev(double x, const double* c, int n) {
  double next = 0.0, after = 0.0;
  for (int k = n - 1; k > 0; --k) {
    const double now = math::fma(2.0 * x, next, c[k]) - after;
    after = next, next = now;
  }
  return math::fma(x, next, c[0]) - after;
}

// ---- the normal distribution ----------------------------------------------------------------------------------------

BARACUDA_SPECIAL double erfinv(double x) { return ::erfinv(x); }
BARACUDA_SPECIAL double erfcx(double x) { return ::erfcx(x); }
BARACUDA_SPECIAL double ndtri(double p) { return ::normcdfinv(p); }

// Phi(x); below 0 as erfcx(-x / sqrt(2)) exp(-x^2 / 2) / 2, whose square keeps its digits.
BARACUDA_SPECIAL double ndtr(double x) {
  const double g = bell(x, 0.25), ratio = 0.5 * ::erfcx(math::abs(x) * sqrt_half);
  return x < 0.0 ? ratio * g * g : 1.0 - ratio * g * g;
}
BARACUDA_SPECIAL double log_ndtr(double x) {
  const double g = bell(x, 0.25), ratio = 0.5 * ::erfcx(math::abs(x) * sqrt_half);
  return x < 0.0 ? math::fma(-0.5 * x, x, math::log(ratio)) : math::log1p(-ratio * g * g);
}

// ---- the gamma function ---------------------------------------------------------------------------------------------

BARACUDA_SPECIAL double lgamma(double x) { return ::lgamma(x); }

__constant__ double digamma_near[22] = {
    0.95105587603183295,    -0.21181371064073026,    0.060135621060193552,   -0.018550615381738605,
    0.0059367952784338263,  -0.0019350666647832667,  0.00063688802831907403, -0.00021074841215733007,
    6.9950204841606249e-05, -2.3258238284313759e-05, 7.7411568812537078e-06, -2.5781078482702171e-06,
    8.5913242224176664e-07, -2.8628755280038686e-07, 9.5009261929240957e-08, -3.1666180720271619e-08,
    1.1037088438854299e-08, -3.6788868183645545e-09, 8.6682573737616577e-10, -2.8893636392161113e-10,
    2.4765474440031764e-10, -8.2551297200810405e-11};

// B(2k)
__constant__ double bernoulli[12] = {0.16666666666666666,   -0.033333333333333333, 0.023809523809523808,
                                     -0.033333333333333333, 0.07575757575757576,   -0.2531135531135531,
                                     1.1666666666666667,    -7.092156862745098,    54.971177944862156,
                                     -529.1242424242424,    6192.123188405797,     -86580.25311355312};

// psi(x), x > 0: between 1 and 2 by a polynomial times the distance from its root, up to 16 by the recurrence from
// there, then its asymptotic series.
BARACUDA_D double psi(double x) {
  if (x < 16.0) {
    double sum = 0.0;
    if (x < 1.0) {
      sum = -1.0 / x;
      x += 1.0;
    }
    while (x > 2.0) {
      x -= 1.0;
      sum += 1.0 / x;
    }
    const double distance = (x - 1.4616321449683622) - 9.5499954299656974e-17;
    return sum + distance * polynomial(math::fma(2.0, x, -3.0), digamma_near, 22);
  }
  const double w = 1.0 / x, s = w * w;
  double series = 0.0;
  for (int k = 7; k >= 0; --k) series = math::fma(series, s, bernoulli[k] / (2 * k + 2));
  return math::log(x) - math::fma(series, s, 0.5 * w);
}
// Poles are NaN, 0 is an infinity, as in PyTorch; negative numbers by reflection.
BARACUDA_SPECIAL double digamma(double x) {
  if (x == 0.0) return math::copysign(numeric<double>::infinity(), -x);
  if (x > 0.0) return math::isinf(x) ? x : psi(x);
  if (!math::isfinite(x) || x == math::floor(x)) return numeric<double>::nan();
  return psi(1.0 - x) - pi * math::cospi(x) / math::sinpi(x);
}

// n! / x^(n + 1), a product in which nothing leaves the range unless the whole does.
BARACUDA_D double factorial_power(double x, int n) {
  double y = 1.0 / x;
  for (int k = 1; k <= n; ++k) y *= k / x;
  return y;
}
// n! zeta(n + 1, x), x > 0 and n > 0, by Euler's and Maclaurin's formula from n + 12 on.
BARACUDA_D double zeta(double x, int n) {
  double sum = 0.0;
  const double far = n + 12;
  for (; x < far; x += 1.0) sum += factorial_power(x, n);
  const double w = 1.0 / x, s = w * w;
  double term = 0.5 * n * (n + 1) * s, tail = math::fma(0.5 * n, w, 1.0) + bernoulli[0] * term;
  for (int k = 2; k <= 12; ++k) {
    term *= (n + 2 * k - 2.0) / (2 * k - 1) * ((n + 2 * k - 1.0) / (2 * k)) * s;
    tail = math::fma(bernoulli[k - 1], term, tail);
  }
  return sum + factorial_power(x, n - 1) * tail;
}
// The derivative of order n > 0 of psi: (-1)^(n + 1) n! zeta(n + 1, x). For x < 0 the poles above x and those below it
// make two sums of positive terms; beyond 0 there are none.
BARACUDA_SPECIAL double polygamma(double x, int n) {
  const double sign = n % 2 ? 1.0 : -1.0, whole = math::floor(x);
  if (x != x || x == -numeric<double>::infinity()) return numeric<double>::nan();
  if (x <= 0.0 && x == whole) return sign * numeric<double>::infinity();
  if (math::isinf(x)) return sign * 0.0;
  double from = x > 0.0 ? x : x - whole, weight = sign, sum = 0.0;
#pragma unroll 1
  for (int part = x > 0.0 ? 2 : 0; part < 3; ++part) {
    sum = math::fma(weight, zeta(from, n), sum);
    from = part == 0 ? math::ceil(x) - x : 1.0 - x;
    weight = part == 0 ? 1.0 : -1.0;
  }
  return sum;
}

BARACUDA_D double derivative_of_psi(double x, int n) { return n == 0 ? digamma(x) : polygamma(x, n); }

// ---- Bessel functions -----------------------------------------------------------------------------------------------

// I0(x) and 2 I1(x) / x for |x| <= 8, as polynomials in x^2 / 4 of positive terms.
__constant__ double i0_near[18] = {1,
                                   1,
                                   0.25,
                                   0.02777777777777778,
                                   0.001736111111111106,
                                   6.9444444444448795e-05,
                                   1.9290123456765543e-06,
                                   3.9367598892378866e-08,
                                   6.1511873240097452e-10,
                                   7.5940584868364238e-12,
                                   7.5940574933844692e-14,
                                   6.2760926161204908e-16,
                                   4.3582869197602222e-18,
                                   2.5796346353114483e-20,
                                   1.3122104575180078e-22,
                                   5.9765895692344508e-25,
                                   1.9739699188457068e-27,
                                   1.2294574273495177e-29};
__constant__ double i1_near[18] = {1,
                                   0.5,
                                   0.083333333333333329,
                                   0.0069444444444444449,
                                   0.00034722222222222196,
                                   1.1574074074074299e-05,
                                   2.7557319223973204e-07,
                                   4.9209498614761529e-09,
                                   6.834652583882281e-11,
                                   7.5940584584446626e-13,
                                   6.9036889973160248e-15,
                                   5.2300736107170654e-17,
                                   3.35255437560049e-19,
                                   1.8424569560103177e-21,
                                   8.7533995952929739e-24,
                                   3.7215794375522944e-26,
                                   1.1827522120067012e-28,
                                   6.6757722173040183e-31};
// sqrt(x) exp(-x) times I0(x), I1(x) and x (I0(x) - I1(x)) for x >= 8, by Chebyshev polynomials of 16 / x - 1.
__constant__ double i0_far[28] = {
    0.40224520550705439,     0.0033691164782556943,   6.8897583469168245e-05,  2.8913705208347567e-06,
    2.0489185894690638e-07,  2.266668990498178e-08,   3.3962320257083865e-09,  4.9406023882249701e-10,
    1.1889147107846439e-11,  -3.1499165279632416e-11, -1.3215811840447713e-11, -1.7941785315068062e-12,
    7.180124451383666e-13,   3.8527783827421426e-13,  1.54008621752141e-14,    -4.1505693472872222e-14,
    -9.5548466988283073e-15, 3.8116806693526224e-15,  1.7725601330565263e-15,  -3.425485619677219e-16,
    -2.8276239805165836e-16, 3.4612228676974612e-17,  4.4656214202967598e-17,  -4.8305044859441819e-18,
    -7.2331804878747538e-18, 9.9214754121736987e-19,  1.193650890845982e-18,   -2.4887098371508075e-19};
__constant__ double i1_far[28] = {
    0.38928811750914005,     -0.0097610974913614687,  -0.00011058893876262371, -3.8825648088776906e-06,
    -2.5122362378702088e-07, -2.6314688468895196e-08, -3.835380385964237e-09,  -5.5897434621965838e-10,
    -1.8974958123505413e-11, 3.2526035830154884e-11,  1.4125807436613782e-11,  2.0356285441470896e-12,
    -7.1985517762459084e-13, -4.0835511110921974e-13, -2.1015418427726643e-14, 4.272440016711951e-14,
    1.0420276984128802e-14,  -3.8144030724370075e-15, -1.8803547755107825e-15, 3.3082023109209285e-16,
    2.9626289976459501e-16,  -3.2095259219934238e-17, -4.6503053684893586e-17, 4.4143483230717077e-18,
    7.5172963108421052e-18,  -9.3141788673268842e-19, -1.242193275194891e-18,  2.4142767194548486e-19};
__constant__ double i0_i1_far[30] = {
    0.20463914491986041,     0.0053485260935385573,   0.00019150500095126415,  1.2032615976256658e-05,
    1.1956976470208373e-06,  1.716841771873406e-07,   2.8338106568544693e-08,  3.0512068490939511e-09,
    -7.4341354538362423e-10, -5.7672839092344344e-10, -1.5193610828268228e-10, 5.6687906228401842e-12,
    1.804470061607724e-11,   4.2535720734199772e-12,  -1.1555903826473055e-12, -7.7707032883126273e-13,
    1.4368043830095462e-14,  1.0913028331644427e-13,  1.1406069274284166e-14,  -1.5049144790858717e-14,
    -2.8555810704808024e-15, 2.2314974017002143e-15,  5.2722587978145678e-16,  -3.6885258885157008e-16,
    -8.53559919668251e-17,   6.7549315226280814e-17,  1.1811455208665337e-17,  -1.3225212330303549e-17,
    -1.0505875291963377e-18, 2.6372007064108129e-18};

// For x >= 0: exp(-x) I0(x), exp(-x) I1(x), and exp(-x) I1(x) / x.
BARACUDA_D double scaled_i0(double x) {
  if (x <= 8.0) return math::exp(-x) * polynomial(0.25 * x * x, i0_near, 18);
  return chebyshev(16.0 / x - 1.0, i0_far, 28) / math::sqrt(x);
}
BARACUDA_D double scaled_i1(double x) {
  if (x <= 8.0) return math::exp(-x) * (0.5 * x * polynomial(0.25 * x * x, i1_near, 18));
  return chebyshev(16.0 / x - 1.0, i1_far, 28) / math::sqrt(x);
}
BARACUDA_D double scaled_i1_over(double x) {
  if (x <= 8.0) return math::exp(-x) * (0.5 * polynomial(0.25 * x * x, i1_near, 18));
  return scaled_i1(x) / x;
}
// y exp(x), x >= 0, the exponential as two square roots: it overflows later than that of x.
BARACUDA_D double times_exponential(double y, double x) {
  const double h = math::exp(0.5 * x);
  return math::isinf(x) ? x : y * h * h;
}
BARACUDA_SPECIAL double i0(double x) { return times_exponential(scaled_i0(math::abs(x)), math::abs(x)); }
BARACUDA_SPECIAL double i1(double x) {
  return math::copysign(times_exponential(scaled_i1(math::abs(x)), math::abs(x)), x);
}
BARACUDA_SPECIAL double i0e(double x) { return scaled_i0(math::abs(x)); }
BARACUDA_SPECIAL double i1e(double x) { return math::copysign(scaled_i1(math::abs(x)), x); }

BARACUDA_SPECIAL double sinc(double x) { return x == 0.0 ? 1.0 : math::sinpi(x) / (pi * x); }
BARACUDA_SPECIAL double spherical_j0(double x) { return x == 0.0 ? 1.0 : math::isinf(x) ? 0.0 : math::sin(x) / x; }

// dy rest / q: a small dy is divided first, so that it keeps its digits, others last, so as not to overflow.
BARACUDA_D double times_quotient(double dy, double rest, double q) {
  if (q == 0.0) return dy * numeric<double>::infinity();
  return magnitude(dy) < 1e-290 ? dy / q * rest : dy * rest / q;
}

}  // namespace baracuda::special

namespace baracuda {

#define BARACUDA_IN_DOUBLE(Name, formula)                                            \
  template <class T> struct Name {                                                   \
    using A = acc_t<T>;                                                              \
    static BARACUDA_D A value(A a, [[maybe_unused]] const Coefficients<A>& k = {}) { \
      const double x = a;                                                            \
      return static_cast<A>(special::formula);                                       \
    }                                                                                \
  };

BARACUDA_IN_DOUBLE(Erfinv, erfinv(x))
BARACUDA_IN_DOUBLE(Erfcx, erfcx(x))
BARACUDA_IN_DOUBLE(Ndtr, ndtr(x))
BARACUDA_IN_DOUBLE(Ndtri, ndtri(x))
BARACUDA_IN_DOUBLE(LogNdtr, log_ndtr(x))
BARACUDA_IN_DOUBLE(Lgamma, lgamma(x))
BARACUDA_IN_DOUBLE(Digamma, digamma(x))
BARACUDA_IN_DOUBLE(Polygamma, derivative_of_psi(x, static_cast<int>(k.a)))
BARACUDA_IN_DOUBLE(I0, i0(x))
BARACUDA_IN_DOUBLE(I0e, i0e(x))
BARACUDA_IN_DOUBLE(I1, i1(x))
BARACUDA_IN_DOUBLE(I1e, i1e(x))
BARACUDA_IN_DOUBLE(Sinc, sinc(x))
BARACUDA_IN_DOUBLE(SphericalBesselJ0, spherical_j0(x))

#undef BARACUDA_IN_DOUBLE

}  // namespace baracuda
