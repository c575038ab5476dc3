#pragma once
// hypergeometric_gauss   Gauss's function F(a, b; c; x) = 2F1 in pairs of doubles.
//
// Up to 1/2 by its power series. Beyond, the differential equation is followed from 1/2 towards 1 by Taylor's series, each
// of which halves the distance d = 1 - x or ends at it, so that no parameter is exceptional; below a distance of 2^-64 F is
// A + B d^(c - a - b). For x < 0 it is (1 - x)^-a F(a, c - b; c; x / (x - 1)). A sum that ends is added up for any x.
// Where terms cancel by more than 2^40, which is more than pairs make good, the result is NaN.
#include "elementwise/combinatorics.cuh"
#include "elementwise/twofold.cuh"

namespace baracuda::special {

constexpr double gauss_most = 16384.0;  // terms of a series, enough for parameters of `gauss_largest`
constexpr double gauss_largest = 1024.0;

BARACUDA_D Twofold negated(const Twofold& a) { return {-a.hi, -a.lo}; }
BARACUDA_D bool ends(const Twofold& a) { return a.hi <= 0.0 && a.lo == 0.0 && a.hi == math::floor(a.hi); }

struct Gauss {
  Twofold a, b, c;
};
// A function and its derivative by x times d, both 2^(512 scale) times smaller than they are; NaN where terms cancelled.
struct Reached {
  Twofold value, slope;
  double scale;
};
BARACUDA_D void settle(Reached& at, double top) {
  if (!(math::abs(at.value.hi) >= 0x1p-40 * top)) at.value.hi = at.slope.hi = numeric<double>::nan();
}

// The power series at z, its slope times z.
BARACUDA_D Reached gauss_series(const Gauss& f, const Twofold& z) {
  Reached at{{1.0, 0.0}, {0.0, 0.0}, 0.0};
  Twofold term{1.0, 0.0};
  const double least = 2.0 * max(max(math::abs(f.a.hi), math::abs(f.b.hi)), math::abs(f.c.hi));
  double top = 1.0, k = 0.0;
  bool done = false;
#pragma unroll 1
  for (; !done && k < gauss_most; k += 1.0) {
    const Twofold from = times(plus(f.a, {k, 0.0}), plus(f.b, {k, 0.0}));
    if (from.hi == 0.0) break;
    term = times(term, over(times(from, z), times(plus(f.c, {k, 0.0}), {k + 1.0, 0.0})));
    at.value = plus(at.value, term);
    at.slope = plus(at.slope, times(term, {k + 1.0, 0.0}));
    const double size = math::abs(term.hi);
    top = max(top, size);
    done = k >= least && (k + 1.0) * size <= max(0x1p-72 * math::abs(at.value.hi), 0x1p-120 * top);
    if (size > 0x1p500) {
      term = scaled(term, 0x1p-512), at.value = scaled(at.value, 0x1p-512), at.slope = scaled(at.slope, 0x1p-512);
      top *= 0x1p-512, at.scale += 1.0;
    }
  }
  settle(at, k < gauss_most ? top : numeric<double>::infinity());
  return at;
}

// From a distance d to (1 - rho) d, rho <= 1/2: terms g of F(z + rho d), with n g of its slope.
BARACUDA_D void gauss_step(const Gauss& f, Reached& at, double d, const Twofold& rho) {
  const double z = 1.0 - d, across = d - z;
  const Twofold total = plus(plus(f.a, f.b), {1.0, 0.0});
  const Twofold line = plus(f.c, negated(times(total, {z, 0.0})));
  const Twofold by_next = over(negated(rho), {z, 0.0}), by_this = times(times(rho, rho), over({d, 0.0}, {z, 0.0}));
  Twofold here = at.value, next = times(at.slope, rho), value = plus(here, next), slope = next;
  const double least = 4.0 * max(max(math::abs(f.a.hi), math::abs(f.b.hi)), math::abs(f.c.hi));
  double top = max(math::abs(here.hi), math::abs(next.hi)), n = 0.0;
  bool done = false;
#pragma unroll 1
  for (; !done && n < gauss_most; n += 1.0) {
    const Twofold ahead = times(plus(line, {across * n, 0.0}), times(by_next, next));
    const Twofold pair = times(plus(f.a, {n, 0.0}), plus(f.b, {n, 0.0}));
    const Twofold behind = over(times(times(pair, by_this), here), {n + 1.0, 0.0});
    here = next, next = over(plus(ahead, behind), {n + 2.0, 0.0});
    value = plus(value, next);
    slope = plus(slope, times(next, {n + 2.0, 0.0}));
    const double size = max(math::abs(here.hi), math::abs(next.hi));
    top = max(top, size);
    done = n >= least && (n + 2.0) * size <= max(0x1p-72 * math::abs(value.hi), 0x1p-120 * top);
  }
  at.value = value, at.slope = times(slope, over(plus({1.0, 0.0}, negated(rho)), rho));
  settle(at, n < gauss_most ? top : numeric<double>::infinity());
  if (max(math::abs(at.value.hi), math::abs(at.slope.hi)) > 0x1p500) {
    at.value = scaled(at.value, 0x1p-512), at.slope = scaled(at.slope, 0x1p-512), at.scale += 1.0;
  }
}

// From z = 1/2 to a distance d from 1.
BARACUDA_D void follow(const Gauss& f, Reached& at, const Twofold& d) {
  double from = 0.5;
#pragma unroll 1
  for (; d.hi < from && from > 0x1p-64; from *= 0.5) {
    const bool last = d.hi >= 0.5 * from;
    const Twofold rho = last ? scaled(plus({from, 0.0}, negated(d)), 1.0 / from) : Twofold{0.5, 0.0};
    if (rho.hi > 0.0) gauss_step(f, at, from, rho);
    if (last) return;
  }
  if (d.hi < from) {  // d F' = -slope
    const double s = plus(f.c, negated(plus(f.a, f.b))).hi, log = math::log(d.hi / from);
    at.value = plus(at.value, {-at.slope.hi * (s == 0.0 ? log : math::expm1(s * log) / s), 0.0});
  }
}

// at base^power, in which a power of two may be far from 1.
BARACUDA_D double times_power(const Reached& at, const Twofold& base, const Twofold& power) {
  const double log = math::log(base.hi), half = ::pow(base.hi, 0.5 * power.hi);
  if (half == 0.0 || math::isinf(half) || base.hi == 0.0) return at.value.hi * half * half;
  const double rest = power.lo * log + power.hi * (base.lo / base.hi);
  int e, k;
  const double m = math::frexp(half, &e), v = math::frexp(math::fma(at.value.hi, rest, at.value.hi), &k);
  return math::ldexp(v * m * m, 2 * e + k + 512 * static_cast<int>(min(at.scale, 64.0)));
}

// F at 1 for c > a + b: gamma(c) gamma(c - a - b) / gamma(c - a) / gamma(c - b).
BARACUDA_D double gauss_at_one(double c, double rest, double left, double right) {
  if (max(max(math::abs(c), math::abs(rest)), max(math::abs(left), math::abs(right))) < 170.0) {
    return ::tgamma(c) / ::tgamma(left) * (::tgamma(rest) / ::tgamma(right));
  }
  const double sign = gamma_sign(c) * gamma_sign(left) * gamma_sign(right);
  return sign * math::exp(log_beta(c, rest) - log_beta(left, right));
}

// F(a, b; c; x).
BARACUDA_D double gauss(const Gauss& f, double x) {
  const double largest = max(max(math::abs(f.a.hi), math::abs(f.b.hi)), math::abs(f.c.hi));
  if (!(largest <= gauss_largest) || !math::isfinite(x)) return numeric<double>::nan();
  const bool ended = (ends(f.a) && f.a.hi >= f.c.hi) || (ends(f.b) && f.b.hi >= f.c.hi);
  if (ends(f.c) && !ended) return numeric<double>::nan();
  bool sum = ends(f.a) || ends(f.b);
  if (sum ? !(math::abs(x) <= 0x1p256) : x > 1.0) return numeric<double>::nan();
  const Twofold one{1.0, 0.0}, d = sum_of(1.0, -x);
  const Twofold left = plus(f.c, negated(f.a)), right = plus(f.c, negated(f.b)), rest = plus(left, negated(f.b));
  Gauss g = f;
  Twofold z{x, 0.0}, gap = d, power{0.0, 0.0};
  if (!sum && (ends(left) || ends(right)) && x >= -0x1p256) {
    g.a = left, g.b = right, power = rest, sum = true;
  } else if (!sum && x == 1.0) {
    if (rest.hi > 0.0) return gauss_at_one(f.c.hi, rest.hi, left.hi, right.hi);
    return gamma_sign(f.a.hi) * gamma_sign(f.b.hi) * gamma_sign(f.c.hi) * numeric<double>::infinity();
  } else if (!sum && x < 0.0) {
    const bool first = f.a.hi < f.b.hi || (f.a.hi == f.b.hi && f.a.lo <= f.b.lo);
    g.a = first ? f.a : f.b, g.b = first ? right : left, power = negated(g.a);
    z = over({-x, 0.0}, d), gap = over(one, d);
  }
  const bool beyond = !sum && z.hi > 0.5;
  Reached at = gauss_series(g, beyond ? Twofold{0.5, 0.0} : z);  // at 1/2 its slope times z is that times d
  if (beyond) follow(g, at, gap);
  return times_power(at, power.hi == 0.0 ? one : d, power);
}
BARACUDA_SPECIAL double hyp2f1(double x, double a, double b, double c) {
  if (math::isnan(a) || math::isnan(b) || math::isnan(c)) return numeric<double>::nan();  // also where a or b is 0
  return gauss({{a, 0.0}, {b, 0.0}, {c, 0.0}}, x);
}
// dy a b / c F(a + 1, b + 1; c + 1; x), 0 where a or b is 0, as F is 1 then.
BARACUDA_SPECIAL double hyp2f1_slope(double dy, double x, double a, double b, double c) {
  const bool level = a * b == 0.0;
  const double by = level ? 0.0 : 1.0;
  const double y = gauss({sum_of(a, by), sum_of(b, by), sum_of(c, by)}, x);
  return dy * (level ? 0.0 * y : c == 0.0 ? numeric<double>::nan() : a * b / c * y);
}

}  // namespace baracuda::special

namespace baracuda {
BARACUDA_QUADRUPLE(Hyp2f1, hyp2f1(a, b, c, d))

namespace partial {

BARACUDA_PARTIAL_BY_A(Hyp2f1, hyp2f1_slope(dy, a, b, c, d))

}  // namespace partial
}  // namespace baracuda
