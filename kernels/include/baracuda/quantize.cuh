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
    if (!fast) return scale == 0.0f ? 0.0f : x / scale;
    const float q = x * inverse, made = corrected(x, q);
    return made == made ? made : q;  // of an infinite x the remainder is NaN
  }
  // Whether `near` gives the quotient of every x whose size is at most `most`: none is NaN, and none is infinite.
  BARACUDA_D bool serves(float most) const { return fast && most * inverse < 0x1p60f; }
  BARACUDA_D float near(float x) const { return corrected(x, x * inverse); }

 private:
  BARACUDA_D float corrected(float x, float q) const { return math::fma(math::fma(-q, scale, x), inverse, q); }
};

// The small float of a code by its numbers, which `SmallFloat` of convert.cuh has as constants: one piece of code for all.
struct Coder {
  u32 shift, first, unit, nan, sign, signs;
  float top;
  bool whole;
  template <int EXPONENT, int FRACTION> BARACUDA_D void is(u32 largest, u32 none) {
    using F = SmallFloat<EXPONENT, FRACTION>;
    shift = 23 - FRACTION, first = (128 - F::bias) << 23, unit = (151 - F::bias - FRACTION) << 23;
    top = F::value(largest), nan = none, sign = F::sign, signs = 31 - EXPONENT - FRACTION;
  }
  BARACUDA_D explicit Coder(int code) : whole(code == to_int8) {
    if (code == to_e2m1) is<2, 1>(7, 7);
    else if (code == to_e5m2) is<5, 2>(0x7b, 0x7f);
    else is<4, 3>(0x7e, 0x7f);
  }
  // To nearest, ties to even, saturating. NaN as an integer is 0, and as fp4, which has none, its maximum.
  BARACUDA_D u8 operator()(float x) const {
    if (whole) return whole_of(x != x ? 0.0f : x);
    return x != x ? static_cast<u8>(nan) : float_of(x);
  }
  // Those of a number. Added to a power of two of which the last bit is the last one that the code has of x, x is rounded
  // there; that power is the one of x's exponent, or of the subnormal codes' where it is smaller.
  BARACUDA_D u8 float_of(float x) const {
    const float size = math::fmin(math::abs(x), top);
    const u32 above = max(static_cast<i32>(__float_as_uint(size) & 0x7f800000u) - static_cast<i32>(first), 0);
    const u32 code = __float_as_uint(size + __uint_as_float(above + unit)) + (above >> shift);
    return static_cast<u8>(code | (__float_as_uint(x) >> signs & sign));
  }
  BARACUDA_D u8 whole_of(float x) const {  // the last bit of 2^23 is 1
    return static_cast<u8>(__float_as_uint(math::fmin(math::fmax(x, -128.0f), 127.0f) + 0x1.8p23f));
  }
};

// The largest size of the first `left` numbers.
template <int V, class L> BARACUDA_D float most_of(const Vec<float, V>& u, L left) {
  float most = 0.0f;
#pragma unroll
  for (int k = 0; k < V; ++k) most = k < left ? math::maximum(most, math::abs(u[k])) : most;
  return most;
}

// The codes of V numbers; two of fp4 are a byte, the first in its lower half.
template <int V> BARACUDA_D Vec<u8, V> codes_of(Vec<float, V> u, const Divisor& by, const Coder& coder) {
  Vec<u8, V> made;
  if (!by.serves(most_of(u, V))) {
#pragma unroll 1
    for (int n = 0; n < V; ++n) {  // rare, and so one piece of code, through which the numbers go round
      const u8 code = coder(by(u[0]));
#pragma unroll
      for (int k = 0; k < V - 1; ++k) u[k] = u[k + 1], made[k] = made[k + 1];
      made[V - 1] = code;
    }
  } else if (coder.whole) {
#pragma unroll
    for (int k = 0; k < V; ++k) made[k] = coder.whole_of(by.near(u[k]));
  } else {
#pragma unroll
    for (int k = 0; k < V; ++k) made[k] = coder.float_of(by.near(u[k]));
  }
  return made;
}
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
BARACUDA_D BlockScale block_scale(float most, float largest, int kind, float whole) {
  if (kind == scale_f32) return {scale_of(most, largest), 0};
  if (kind == scale_e4m3) {
    const u8 code = coded<code_e4m3>(most / largest / whole, true);
    return {coded_value<code_e4m3>(code) * whole, code};
  }
  if (!math::isfinite(most)) return {numeric<float>::nan(), 255};
  int e, top;
  math::frexp(most, &e), math::frexp(largest, &top);
  const u8 code = static_cast<u8>(most == 0.0f ? 0 : max(0, e - top + 127));
  return {coded_value<code_e8m0>(code), code};
}

// The largest over the `lanes` threads, a power of two of neighbours, that hold a block. All of the warp call.
BARACUDA_D float block_most(float most, int lanes) {
#pragma unroll 1
  for (int mask = 1; mask < lanes; mask *= 2) most = math::maximum(most, shuffle_xor(most, mask));
  return most;
}

}  // namespace baracuda::quantize
