#pragma once
// variates   those that try until they accept, or that take several words: one element from blocks of its own, in double.
//
// Double whatever y is: then NumPy, which decides by the same comparisons, accepts the same tries. Each has a bound on
// its tries, beyond which it gives what is stated beside it, with a probability below 2^-100.
#include "random/distributions.cuh"

namespace baracuda::random {

constexpr double half_log_2pi = 0.9189385332046727;

// ---- gamma ----------------------------------------------------------------------------------------------------------

// Of concentration a: `value` e^log_factor, apart since the factor of a small a may be 0 in any float.
struct GammaPair {
  double value, log_factor;
  // The root of e^log_factor: of a product that takes it twice, nothing before the end leaves the range of a double.
  BARACUDA_D double root() const { return math::exp(0.5 * log_factor); }
};
// Marsaglia and Tsang 2000: 32 tries, of which 95 % accept, then the mode nearly, a - 1/3. Below 1 by a + 1 and U^(1/a).
BARACUDA_D GammaPair gamma_pair(const Tries& from, int base, double a) {
  const bool small = a < 1.0;
  const double d = (small ? a + 1.0 : a) - 1.0 / 3.0, c = 1.0 / math::sqrt(9.0 * d);
  double value = d;
#pragma unroll 1
  for (int j = 0; j < 32; ++j) {
    const Philox4 b = from.block(base + j);
    double x, unused;
    Tries::normals(b, x, unused);
    const double t = math::fma(c, x, 1.0), v = t * t * t, u = Tries::second(b);
    if (v > 0.0 && math::log(u) < 0.5 * x * x + d * (1.0 - v + math::log(v))) {
      value = d * v;
      break;
    }
  }
  return {value, small ? math::log(Tries::first(from.block(base + 32))) / a : 0.0};
}
BARACUDA_D double gamma_variate(const Tries& from, int base, double a, double rate = 1.0) {
  if (!(a > 0.0)) return (a == 0.0 ? 0.0 : numeric<double>::nan()) / rate;
  const GammaPair g = gamma_pair(from, base, a);
  const double root = g.root();
  return g.value * root / rate * root;
}
BARACUDA_D double log_gamma_variate(const Tries& from, int base, double a) {
  if (!(a > 0.0)) return a == 0.0 ? -numeric<double>::infinity() : numeric<double>::nan();
  const GammaPair g = gamma_pair(from, base, a);
  return math::log(g.value) + g.log_factor;
}

struct Gamma {
  static constexpr int reals = above_0, parameters = 2;
  static BARACUDA_D double of(const Tries& from, double a, double rate, double) {
    return gamma_variate(from, 0, a, rate);
  }
};
struct LogGamma {
  static constexpr int reals = real_of_positive, parameters = 1;
  static BARACUDA_D double of(const Tries& from, double a, double, double) { return log_gamma_variate(from, 0, a); }
};
struct Beta {
  static constexpr int reals = within_1, parameters = 2;
  static BARACUDA_D double of(const Tries& from, double a, double b, double) {
    const double apart = log_gamma_variate(from, 64, b) - log_gamma_variate(from, 0, a);
    const double lesser = math::exp(-math::abs(apart));
    return (apart > 0.0 ? lesser : 1.0) / (1.0 + lesser);
  }
};
struct ChiSquare {
  static constexpr int reals = above_0, parameters = 1;
  static BARACUDA_D double of(const Tries& from, double df, double, double) {
    return gamma_variate(from, 0, 0.5 * df, 0.5);
  }
};
struct StudentT {
  static constexpr int reals = any_real, parameters = 3;
  static BARACUDA_D double of(const Tries& from, double df, double loc, double scale) {
    if (!(df > 0.0)) return numeric<double>::nan();
    double z, unused;
    Tries::normals(from.block(40), z, unused);
    const GammaPair g = gamma_pair(from, 0, 0.5 * df);
    const double near = z * math::sqrt(0.5 * df / g.value), root = math::exp(-0.25 * g.log_factor);
    return near == 0.0 ? loc : math::fma(scale * root, near * root, loc);  // that root may be infinite
  }
};
struct FRatio {
  static constexpr int reals = above_0, parameters = 2;
  static BARACUDA_D double of(const Tries& from, double top, double bottom, double) {
    if (!(top > 0.0 && bottom > 0.0)) return numeric<double>::nan();
    const GammaPair above = gamma_pair(from, 0, 0.5 * top), below = gamma_pair(from, 64, 0.5 * bottom);
    const double root = GammaPair{1.0, above.log_factor - below.log_factor}.root();
    return above.value / top * bottom / below.value * root * root;
  }
};
struct GeneralizedNormal {
  static constexpr int reals = real_of_positive, parameters = 1;
  static BARACUDA_D double of(const Tries& from, double power, double, double) {
    const GammaPair g = gamma_pair(from, 0, 1.0 / power);
    const double size = math::exp((math::log(g.value) + g.log_factor) / power);
    return from.block(40).x & 1 ? -size : size;
  }
};

// ---- of normal and uniform variates ---------------------------------------------------------------------------------

// The length of three normal variates.
BARACUDA_D double length3(const Tries& from) {
  double x, y, z, unused;
  Tries::normals(from.block(0), x, y);
  Tries::normals(from.block(1), z, unused);
  return math::sqrt(x * x + y * y + z * z);
}
struct Maxwell {
  static constexpr int reals = above_0, parameters = 1;
  static BARACUDA_D double of(const Tries& from, double scale, double, double) { return scale * length3(from); }
};
struct DoubleMaxwell {
  static constexpr int reals = any_real, parameters = 2;
  static BARACUDA_D double of(const Tries& from, double loc, double scale, double) {
    return math::fma(scale, from.block(2).x & 1 ? -length3(from) : length3(from), loc);
  }
};
// Inverse Gaussian (Michael, Schucany, Haas 1976). The smaller root as 2 over a sum, which does not cancel.
struct Wald {
  static constexpr int reals = above_0, parameters = 2;
  static BARACUDA_D double of(const Tries& from, double mean, double scale, double) {
    const Philox4 b = from.block(0);
    double z, unused;
    Tries::normals(b, z, unused);
    const double t = mean * z * z / scale, x = 2.0 * mean / (2.0 + t + math::sqrt(t * (4.0 + t)));
    return Tries::second(b) * (mean + x) <= mean ? x : mean * mean / x;
  }
};
// By the inverse of the distribution function, on the side of 0 where that is fine. Beyond 36 deviations, where the
// function nears the least double, by an exponential variate of the tail, cut at the far bound (Robert 1995): 16 tries,
// of which 1295 in 1296 accept, then the near bound, which is the mode.
struct TruncatedNormal {
  static constexpr int reals = bounded, parameters = 2;
  static BARACUDA_D double of(const Tries& from, double low, double high, double) {
    const bool flip = low > 0.0;
    const double a = flip ? -high : low, b = flip ? -low : high;
    const double x = b < -36.0 && b > -numeric<double>::infinity() ? tail(from, a, b) : inverse(from, a, b);
    const double y = x < a ? a : x > b ? b : x;
    return flip ? -y : y;
  }
  static BARACUDA_D double inverse(const Tries& from, double a, double b) {
    const double below = math::normcdf(a), mass = math::normcdf(b) - below;
    return math::normcdfinv(math::fma(Tries::first(from.block(0)), mass, below));
  }
  static BARACUDA_D double tail(const Tries& from, double a, double b) {
    const double mass = math::expm1(b * (b - a));
#pragma unroll 1
    for (int j = 0; j < 16; ++j) {
      const Philox4 block = from.block(j);
      const double e = math::log1p(Tries::first(block) * mass) / b;
      if (Tries::second(block) <= math::exp(-0.5 * e * e)) return b - e;
    }
    return b;
  }
};

// ---- whole numbers --------------------------------------------------------------------------------------------------

// log k! - (k + 1/2) log(k + 1) + (k + 1) - log(2 pi) / 2, k >= 0: Stirling's series, a correction table below 10.
BARACUDA_D double stirling_rest(double k) {
  constexpr double first[10] = {0.081061466795327258220, 0.041340695955409294094, 0.027677925684998339148,
                                0.020790672103765093111, 0.016644691189821192163, 0.013876128823070747999,
                                0.011896709945891770095, 0.010411265261972096497, 0.0092554621827127329178,
                                0.0083305634333631262146};
  if (k < 10.0) return first[static_cast<int>(k)];
  const double r = 1.0 / (k + 1.0), s = r * r;
  return (1.0 / 12.0 - (1.0 / 360.0 - (1.0 / 1260.0 - s / 1680.0) * s) * s) * r;
}

// log of a Poisson rate's probability of k. The large terms cancel in log1p(delta) - delta, which then is small itself.
BARACUDA_D double poisson_density(double k, double rate) {
  const double next = k + 1.0, delta = (rate - next) / next, grown = math::log1p(delta);
  return next * (grown - delta) - grown - 0.5 * math::log(next) - half_log_2pi - stirling_rest(k);
}

// Below a rate of 10 by inversion of one uniform; else by the transformed rejection PTRS (Hoermann 1993), 64 tries of
// which 5 in 6 accept at least, then the rate rounded down.
BARACUDA_D double poisson_variate(const Tries& from, int base, double rate) {
  if (!(rate > 0.0)) return rate == 0.0 ? 0.0 : numeric<double>::nan();
  if (rate < 10.0) {
    double u = Tries::first(from.block(base)), p = math::exp(-rate), k = 0.0;
    while (u > p && k < 200.0) u -= p, k += 1.0, p *= rate / k;
    return k;
  }
  const double b = 0.931 + 2.53 * math::sqrt(rate), a = -0.059 + 0.02483 * b;
  const double inverse = 1.1239 + 1.1328 / (b - 3.4), sure = 0.9277 - 3.6224 / (b - 2.0);
#pragma unroll 1
  for (int j = 0; j < 64; ++j) {
    const Philox4 block = from.block(base + j);
    const double u = Tries::first(block) - 0.5, v = Tries::second(block), edge = 0.5 - math::abs(u);
    const double k = math::floor((2.0 * a / edge + b) * u + rate + 0.43);
    if (edge >= 0.07 && v <= sure) return k;
    if (k < 0.0 || (edge < 0.013 && v > edge)) continue;
    if (math::log(v * inverse / (a / (edge * edge) + b)) <= poisson_density(k, rate)) return k;
  }
  return math::floor(rate);
}
struct Poisson {
  static constexpr int reals = any_real, parameters = 1;
  static BARACUDA_D double of(const Tries& from, double rate, double, double) { return poisson_variate(from, 0, rate); }
};
// A Poisson variate of a gamma rate: failures before `count` successes of probability p.
struct NegativeBinomial {
  static constexpr int reals = any_real, parameters = 2;
  static BARACUDA_D double of(const Tries& from, double count, double p, double) {
    return poisson_variate(from, 64, gamma_variate(from, 0, count) * ((1.0 - p) / p));
  }
};

// Of p <= 1/2. Below a mean of 10 by inversion of one uniform; else by the transformed rejection BTRS (Hoermann 1993),
// 64 tries, then the mode. Its probabilities are those of two Poisson variates of the sum n.
BARACUDA_D double binomial_half(const Tries& from, double n, double p) {
  const double q = 1.0 - p;
  if (n * p < 10.0) {
    const double odds = p / q;
    double u = Tries::first(from.block(0)), r = math::exp(n * math::log1p(-p)), k = 0.0;
    while (u > r && k < n && k < 200.0) u -= r, k += 1.0, r *= ((n + 1.0) / k - 1.0) * odds;
    return k;
  }
  const double deviation = math::sqrt(n * p * q), b = 1.15 + 2.53 * deviation;
  const double a = -0.0873 + 0.0248 * b + 0.01 * p, center = n * p + 0.5, sure = 0.92 - 4.2 / b;
  const double alpha = (2.83 + 5.1 / b) * deviation, mode = math::floor((n + 1.0) * p);
#pragma unroll 1
  for (int j = 0; j < 64; ++j) {
    const Philox4 block = from.block(j);
    const double u = Tries::first(block) - 0.5, v = Tries::second(block), edge = 0.5 - math::abs(u);
    const double k = math::floor((2.0 * a / edge + b) * u + center);
    if (k < 0.0 || k > n) continue;
    if (edge >= 0.07 && v <= sure) return k;
    const double ratio = poisson_density(k, n * p) + poisson_density(n - k, n * q) - poisson_density(mode, n * p) -
                         poisson_density(n - mode, n * q);
    if (math::log(v * alpha / (a / (edge * edge) + b)) <= ratio) return k;
  }
  return mode;
}
struct Binomial {
  static constexpr int reals = any_real, parameters = 2;
  static BARACUDA_D double of(const Tries& from, double count, double p, double) {
    const double n = math::floor(count);
    if (!(n >= 0.0 && n < numeric<double>::infinity() && p >= 0.0 && p <= 1.0)) return numeric<double>::nan();
    return p <= 0.5 ? binomial_half(from, n, p) : n - binomial_half(from, n, 1.0 - p);
  }
};
// Trials up to the first success, that one included.
struct Geometric {
  static constexpr int reals = any_real, parameters = 1;
  static BARACUDA_D double of(const Tries& from, double p, double, double) {
    if (!(p > 0.0 && p <= 1.0)) return numeric<double>::nan();
    return p == 1.0 ? 1.0 : math::floor(math::log(Tries::first(from.block(0))) / math::log1p(-p)) + 1.0;
  }
};

}  // namespace baracuda::random
