#pragma once
// quantize   numbers as codes of 8 or 4 bits with a scale: quotients, codes, and scales of rows and of blocks of columns.
#include <baracuda/convert.cuh>
#include <baracuda/math.cuh>
#include <baracuda/reduce.cuh>
#include <baracuda/vector.cuh>

namespace baracuda::quantize {

enum Code { to_e4m3, to_e5m2, to_int8, to_e2m1 };      // what holds a number
enum ScaleCode { scale_f32, scale_e8m0, scale_e4m3 };  // what holds the scale of a block

// x / scale, rounded to nearest, without a division for each x: the remainder of x times the inverse, which is exact,
// corrects it. Remainders may be subnormal beside scales near the ends of the range, where a division is taken.
struct Divisor {
  float scale, inverse;
  bool fast;
  BARACUDA_D explicit Divisor(float s) : Divisor(s, 1.0f / s) {}
  BARACUDA_D Divisor(float s, float inverse) : scale(s), inverse(inverse), fast(s > 0x1p-90f && s < 0x1p90f) {}
  BARACUDA_D float operator()(float x) const {
    if (!fast) return scale == 0.0f ? zero(x) : x / scale;
    const float q = x * inverse, made = corrected(x, q);
    return made == made ? made : q;  // of an infinite x the remainder is NaN
  }
  // Whether `near` gives the quotient of every x whose size is at most `most`: none is NaN, and none is infinite.
  BARACUDA_D bool serves(float most) const { return fast && most * inverse < 0x1p60f; }
  BARACUDA_D float near(float x) const { return corrected(x, x * inverse); }

 private:
  // What a scale of 0 gives: 0 with the sign of the quotient.
  BARACUDA_D float zero(float x) const {
    return __uint_as_float((__float_as_uint(x) ^ __float_as_uint(scale)) & 0x80000000u);
  }
  // The remainder is q scale - x, as x - q scale is a 0 without the sign of a q that is 0.
  BARACUDA_D float corrected(float x, float q) const { return math::fma(math::fma(q, scale, -x), -inverse, q); }
};

// The lowest bytes of four words, and the highest.
BARACUDA_D u32 lowest_bytes(const u32 (&x)[4]) {
  return __byte_perm(__byte_perm(x[0], x[1], 0x0040), __byte_perm(x[2], x[3], 0x0040), 0x5410);
}
BARACUDA_D u32 highest_bytes(const u32 (&x)[4]) {
  return __byte_perm(__byte_perm(x[0], x[1], 0x0073), __byte_perm(x[2], x[3], 0x0073), 0x5410);
}

// Codes of small floats, of which TOP is the largest: to nearest, ties to even, saturating.
template <int EXPONENT, int FRACTION, u32 TOP> struct FloatCoder {
  using F = SmallFloat<EXPONENT, FRACTION>;
  static constexpr u32 none = EXPONENT + FRACTION == 7 ? 0x7fu : TOP;  // of NaN

  // The code of a size that is no NaN, in the lowest byte; above it is anything.
  static BARACUDA_D u32 size_of(float x) {
    const float size = math::fmin(math::abs(x), F::value(TOP));
    if constexpr (EXPONENT == 2 && FRACTION == 1) {
      // The least of three lines, each rounded where it is added to 2^23, whose last bit is 1.
      const u32 first = __float_as_uint(math::fma(size, 2.0f, 0x1p23f)), second = __float_as_uint(size + 8388610.0f);
      return min(min(first, second), __float_as_uint(math::fma(size, 0.5f, 8388612.0f)));
    } else {
      // Added to a power of two of which the last bit is the last one that the code has of x, x is rounded there; that
      // power is the one of x's exponent, or of the subnormal codes' where it is smaller. The exponent is added to that
      // byte, and what a float's is larger by is a part of `unit`.
      constexpr u32 larger = (128 - F::bias) << FRACTION;
      static_assert(larger % 2 == 0, "an odd number would turn ties");
      constexpr float unit = static_cast<float>((1u << 23) + (-larger & 255u)) / (1 << FRACTION);
      const float least = __uint_as_float((128 - F::bias) << 23);
      const float power = math::fmax(__uint_as_float(__float_as_uint(size) & 0x7f800000u), least);
      return __float_as_uint(math::fma(power, unit, size)) + (__float_as_uint(power) >> (23 - FRACTION));
    }
  }
  static BARACUDA_D u8 code_of(float x) {
    constexpr u32 low = F::sign - 1;
    return static_cast<u8>(x != x ? none
                                  : (size_of(x) & low) | (__float_as_uint(x) >> (31 - EXPONENT - FRACTION) & F::sign));
  }
  BARACUDA_D u8 operator()(float x) const { return code_of(x); }
  template <class F> BARACUDA_D void with(const F& f) const { f(*this); }
  // Those of four numbers, none of them NaN, as the bytes of a word.
  static BARACUDA_D u32 codes_of(const float* x) {
    u32 size[4], bits[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) size[k] = size_of(x[k]), bits[k] = __float_as_uint(x[k]);
    return lowest_bytes(size) | (highest_bytes(bits) >> (7 - EXPONENT - FRACTION) & F::sign * 0x01010101u);
  }
};
using E4M3Coder = FloatCoder<4, 3, 0x7e>;
using E5M2Coder = FloatCoder<5, 2, 0x7b>;
using E2M1Coder = FloatCoder<2, 1, 7>;

struct Int8Coder {
  static BARACUDA_D u32 whole_of(float x) {  // the last bit of 2^23 is 1
    return __float_as_uint(math::fmin(math::fmax(x, -128.0f), 127.0f) + 0x1.8p23f);
  }
  static BARACUDA_D u8 code_of(float x) { return static_cast<u8>(whole_of(x != x ? 0.0f : x)); }
  static BARACUDA_D u32 codes_of(const float* x) {
    u32 code[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) code[k] = whole_of(x[k]);
    return lowest_bytes(code);
  }
};

// Those of a format that is a number of the parameters. NaN as an integer is 0, and as fp4, which has none, its maximum.
struct Coder {
  int code;
  BARACUDA_D explicit Coder(int code) : code(code) {}
  template <class F> BARACUDA_D auto with(const F& f) const {
    if (code == to_e4m3) return f(E4M3Coder());
    if (code == to_e5m2) return f(E5M2Coder());
    if (code == to_int8) return f(Int8Coder());
    return f(E2M1Coder());
  }
  BARACUDA_D u8 operator()(float x) const {
    return with([&](auto coder) { return coder.code_of(x); });
  }
};

// The largest size of the first `left` numbers.
template <int V, class L> BARACUDA_D float most_of(const Vec<float, V>& u, L left) {
  float most = 0.0f;
#pragma unroll
  for (int k = 0; k < V; ++k) most = k < left ? math::maximum(most, math::abs(u[k])) : most;
  return most;
}

// The codes of V numbers as four bytes a word: of near(x) where `serves`, which makes no NaN, else of exact(x).
template <int V, class C, class Near, class Exact>
BARACUDA_D Vec<u8, V> codes_by(Vec<float, V> u, const C& coder, bool serves, const Near& near, const Exact& exact) {
  static_assert(V % 4 == 0, "whole words of codes");
  u32 word[V / 4] = {};  // not bytes: branches would meet in a register for each
  if (serves) {
#pragma unroll
    for (int k = 0; k < V; ++k) u[k] = near(u[k]);
    coder.with([&](auto one) {
#pragma unroll
      for (int k = 0; k < V; k += 4) word[k / 4] = one.codes_of(u.v + k);
    });
  } else {
#pragma unroll 1
    for (int n = 0; n < V; ++n) {  // rare, and so one piece of code, through which the numbers go round
      const u32 code = coder(exact(u[0]));
#pragma unroll
      for (int k = 0; k < V - 1; ++k) u[k] = u[k + 1];
#pragma unroll
      for (int k = 0; k < V / 4; ++k) word[k] = word[k] >> 8 | (k + 1 < V / 4 ? word[k + 1] : code) << 24;
    }
  }
  Vec<u8, V> made;
#pragma unroll
  for (int k = 0; k < V / 4; ++k) reinterpret_cast<u32*>(&made)[k] = word[k];
  return made;
}
// The codes of V numbers; `known`: none is NaN.
template <int V> BARACUDA_D Vec<u8, V> codes_of(const Vec<float, V>& u, const Coder& coder, bool known) {
  const auto same = [](float x) { return x; };
  return codes_by(u, coder, known, same, same);
}
// The codes of the quotients of V numbers of which no size is above `most`, which is NaN where one is NaN.
template <int V>
BARACUDA_D Vec<u8, V> codes_of(const Vec<float, V>& u, const Divisor& by, const Coder& coder, float most) {
  return codes_by(u, coder, by.serves(most), [&](float x) { return by.near(x); }, [&](float x) { return by(x); });
}
template <int V> BARACUDA_D Vec<u8, V> codes_of(const Vec<float, V>& u, const Divisor& by, const Coder& coder) {
  return codes_of(u, by, coder, most_of(u, V));
}
// The codes of V numbers over a scale that is a power of two; `most` as above.
template <int V, class C>
BARACUDA_D Vec<u8, V> codes_over(const Vec<float, V>& u, float scale, const C& coder, float most) {
  // Of a power of two that is a normal number the exponent changes its sign; of zeros any number serves.
  const float inverse = __uint_as_float(0x7f000000u - __float_as_uint(scale));
  const bool serves = scale >= numeric<float>::tiny() || most == 0.0f;
  return codes_by(u, coder, serves, [&](float x) { return x * inverse; }, [&](float x) { return Divisor(scale)(x); });
}
// Two codes of fp4 are a byte, the first in its lower half.
template <int V> BARACUDA_D Vec<u8, V / 2> paired(const Vec<u8, V>& codes) {
  Vec<u8, V / 2> made;
#pragma unroll
  for (int k = 0; k < V / 2; ++k) made[k] = static_cast<u8>(codes[2 * k] | codes[2 * k + 1] << 4);
  return made;
}

// most / largest; a subnormal one has few digits.
BARACUDA_D float scale_of(float most, float largest) {
  const float quotient = most / largest;
  return quotient < numeric<float>::tiny() ? numeric<float>::tiny() : quotient;
}

// A block's scale, and what is stored of it. e8m0: the power of two that brings `most` to the exponent of `largest`
// (OCP Microscaling Formats 1.0), NaN where it is not finite. e4m3: most / largest over the whole tensor's scale.
struct BlockScale {
  float value;
  u8 code;
};
struct BlockScaler {
  int kind;  // a ScaleCode
  Divisor largest, whole;
  BARACUDA_D BlockScaler(float largest, int kind, float whole) : kind(kind), largest(largest), whole(whole) {}
  BARACUDA_D BlockScale operator()(float most) const {
    if (kind == scale_f32) return {scale_of(most, largest.scale), 0};
    if (kind == scale_e4m3) {
      const u8 code = E4M3Coder::code_of(over(over(most, largest), whole));
      return {coded_value<code_e4m3>(code) * whole.scale, code};
    }
    // The exponents of floats, 2^-127 at least.
    constexpr i32 exponents = 0x7f800000, one = 0x3f800000;
    const i32 apart = (__float_as_int(largest.scale) & exponents) - one;
    const i32 power = max((__float_as_int(most) & exponents) - apart, 0x00400000);
    const float value = math::isfinite(most) ? __int_as_float(power) : numeric<float>::nan();
    return {value, static_cast<u8>(__float_as_uint(value) >> 23)};
  }

 private:
  // x / by, mostly without a division.
  static BARACUDA_D float over(float x, const Divisor& by) {
    return math::abs(x) > 0x1p-30f && by.serves(math::abs(x)) ? by.near(x) : x / by.scale;
  }
};
BARACUDA_D BlockScale block_scale(float most, float largest, int kind, float whole) {
  return BlockScaler(largest, kind, whole)(most);
}

// The largest over the `lanes` threads, a power of two of neighbours, that hold a block. All of the warp call.
BARACUDA_D float block_most(float most, int lanes) {
#pragma unroll 1
  for (int mask = 1; mask < lanes; mask *= 2) most = math::maximum(most, shuffle_xor(most, mask));
  return most;
}

}  // namespace baracuda::quantize
