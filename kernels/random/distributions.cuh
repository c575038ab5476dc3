#pragma once
// distributions   those that take one word an element: of a word and up to three parameters, in the type A; y is of type T.
//
// E = -log of a number in (0, 1) is a standard exponential variate; symmetric ones take the word's lowest bit as sign.
#include "random/transforms.cuh"

namespace baracuda::random {

// ---- what rounds to an end of an open interval ----------------------------------------------------------------------

// The reals that a distribution gives: any, of parameters that may be any or are all above 0; those above 0, likewise;
// those between 0 and 1; or what has ends of its own.
enum Reals { any_real, real_of_positive, exponentials, above_0, within_1, bounded };

// The smallest element above 0, and the largest below 1, in a type that holds both.
template <class T, class A> BARACUDA_D A least_above_0() {
  if constexpr (is_same<T, f16>) return A(0x1p-24);
  else if constexpr (is_same<T, bf16>) return A(0x1p-133);
  else if constexpr (is_same<T, float>) return A(0x1p-149);
  else return A(0x1p-1074);
}
template <class T, class A> BARACUDA_D A most_below_1() { return A(1) - A(0.5) * cast<A>(numeric<T>::epsilon()); }

// v, or the element nearest to it inside the interval where v rounds to its end, as 0 or an infinity. Parameters that are
// none of the distribution's (a rate of 0, an infinite one) leave v as it is.
template <int REALS, class A> BARACUDA_D bool is_parameter(A x) {
  return math::isfinite(x) && (REALS == any_real || REALS == exponentials || x > A(0));
}
template <class D, class T, class A> BARACUDA_D A inside(A v, A a, A b, A c) {
  constexpr int REALS = D::reals;
  if constexpr (REALS == bounded || !is_floating<T>) {
    return v;
  } else {
    bool known = is_parameter<REALS>(a);
    if constexpr (D::parameters > 1) known = known && is_parameter<REALS>(b);
    if constexpr (D::parameters > 2) known = known && is_parameter<REALS>(c);
    const A top = REALS == within_1 ? most_below_1<T, A>() : cast<A>(numeric<T>::max());
    const A bottom = REALS == any_real || REALS == real_of_positive ? -top : least_above_0<T, A>();
    return !known ? v : v < bottom ? bottom : v > top ? top : v;  // NaN stays
  }
}

// low + u (high - low), u of so many bits as y has, so that it is never 1.
struct Uniform {
  static constexpr int reals = bounded, parameters = 2;
  template <class T, class A, class W> static BARACUDA_D A of(W w, A low, A high, A) {
    constexpr int bits = is_same<T, bf16> ? 8 : is_same<T, f16> ? 11 : is_same<T, float> ? 24 : 53;
    constexpr int drop = 8 * sizeof(W) - bits;
    const A unit = A(1) / static_cast<A>(1ull << bits);
    return math::fma(static_cast<A>(w >> drop) * unit, high - low, low);
  }
};

struct Exponential {
  static constexpr int reals = above_0, parameters = 1;
  template <class T, class A, class W> static BARACUDA_D A of(W w, A rate, A, A) {
    return Divisor<A>(rate).into(minus_log<T>(near_open<T>(w)));
  }
};
struct Rayleigh {
  static constexpr int reals = above_0, parameters = 1;
  template <class T, class A, class W> static BARACUDA_D A of(W w, A scale, A, A) {
    return scale * radius<T>(near_open<T>(w));
  }
};
struct Weibull {
  static constexpr int reals = above_0, parameters = 2;
  template <class T, class A, class W> static BARACUDA_D A of(W w, A scale, A power, A) {
    return scale * math::pow(minus_log<T>(near_open<T>(w)), A(1) / power);
  }
};
struct Pareto {
  static constexpr int reals = above_0, parameters = 2;
  template <class T, class A, class W> static BARACUDA_D A of(W w, A scale, A power, A) {
    return scale * math::exp(Divisor<A>(power).into(minus_log<T>(near_open<T>(w))));
  }
};
struct Gumbel {
  static constexpr int reals = any_real, parameters = 2;
  template <class T, class A, class W> static BARACUDA_D A of(W w, A loc, A scale, A) {
    return math::fma(scale, -math::log(-math::log1p(-open(w))), loc);
  }
};
struct Laplace {
  static constexpr int reals = any_real, parameters = 2;
  template <class T, class A, class W> static BARACUDA_D A of(W w, A loc, A scale, A) {
    bool negative;
    const A v = open_signed(w, negative);
    return math::fma(scale, with_sign(minus_log<T>(v), negative), loc);
  }
};
struct Logistic {
  static constexpr int reals = any_real, parameters = 2;
  template <class T, class A, class W> static BARACUDA_D A of(W w, A loc, A scale, A) {
    bool negative;
    const A v = open_signed(w, negative);
    return math::fma(scale, with_sign(math::log1p(A(2) * (A(1) - v) / v), negative), loc);
  }
};
struct Cauchy {
  static constexpr int reals = any_real, parameters = 2;
  template <class T, class A, class W> static BARACUDA_D A of(W w, A loc, A scale, A) {
    bool negative;
    const A half = A(0.5) * open_signed(w, negative);
    return math::fma(scale, with_sign(math::cospi(half) / math::sinpi(half), negative), loc);
  }
};
// The mode divides [left, right] at a part of it, and both sides are roots of what is uniform.
struct Triangular {
  static constexpr int reals = bounded, parameters = 3;
  template <class T, class A, class W> static BARACUDA_D A of(W w, A left, A mode, A right) {
    const A v = open(w), span = right - left, before = mode - left;
    const bool low = v * span < before;
    const A root = math::sqrt(low ? v * span * before : (A(1) - v) * span * (right - mode));
    return low ? left + root : right - root;
  }
};

// ---- normal variates: both of a pair are made where a chunk has both ------------------------------------------------

struct Normal {
  static constexpr int reals = any_real, parameters = 2;
  template <class A> static BARACUDA_D A of(A z, A loc, A scale) { return math::fma(scale, z, loc); }
};
struct LogNormal {
  static constexpr int reals = exponentials, parameters = 2;
  template <class A> static BARACUDA_D A of(A z, A loc, A scale) { return math::exp(math::fma(scale, z, loc)); }
};

// ---- of 32 bits, whatever y is --------------------------------------------------------------------------------------

// p in units of 2^-32, cut: below 0 and NaN are 0, above 1 is 1. Without a branch, so that numbers are converted once.
template <class A> BARACUDA_D u64 threshold(A p) {
  return static_cast<u64>(math::fmin(math::fmax(p, A(0)), A(1)) * A(4294967296.0));
}
struct Bernoulli {
  template <class T, class A> static BARACUDA_D T of(u32 w, A p) {
    const u64 end = threshold(p);
    return cast<T>(end != 0 && w <= static_cast<u32>(end - 1) ? 1 : 0);
  }
};
struct Rademacher {
  template <class T, class A> static BARACUDA_D T of(u32 w, A) { return cast<T>(w >> 31 ? 1 : -1); }
};

// low + a whole number below `span`, 2^64 where that is 0: the upper half of a product of word and span, unless the
// lower half is among the 2^bits mod span that would make some numbers likelier than others; then another word is tried
// (Lemire 2019), 63 times. A span of up to 2^32 takes words of 32 bits, others of 64.
struct RandInt {
  static constexpr int tries = 64;
  static BARACUDA_D bool is_narrow(u64 span) { return span - 1 <= 0xffffffffull; }  // not 0, which is 2^64
  // Whether the product of a word and a narrow span may have to be tried again.
  static BARACUDA_D bool is_unsure(u64 product, u64 span) { return static_cast<u32>(product) < static_cast<u32>(span); }
  static BARACUDA_D i64 of(u64 product, i64 low) { return static_cast<i64>(static_cast<u64>(low) + (product >> 32)); }
  static BARACUDA_D i64 of(u64 seed, u64 offset, u64 n, u32 first, i64 low, u64 span) {
    if (is_narrow(span)) {
      const u32 part = static_cast<u32>(span);
      u64 product = static_cast<u64>(first) * span;
      if (is_unsure(product, span)) {
        const u32 least = (0u - part) % part;
        for (int j = 1; j < tries && static_cast<u32>(product) < least; ++j) {
          product = static_cast<u64>(Tries{seed, offset, n}.block(j).x) * span;
        }
      }
      return of(product, low);
    }
    u64 w[1];
    words<1>(seed, offset, n, w);
    if (span == 0) return static_cast<i64>(static_cast<u64>(low) + w[0]);
    if (w[0] * span < span) {
      const u64 least = (0ull - span) % span;
      for (int j = 1; j < tries && w[0] * span < least; ++j) {
        const Philox4 b = Tries{seed, offset, n}.block(j);
        w[0] = static_cast<u64>(b.y) << 32 | b.x;
      }
    }
    return static_cast<i64>(static_cast<u64>(low) + __umul64hi(w[0], span));
  }
};

}  // namespace baracuda::random
