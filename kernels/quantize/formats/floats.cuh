#pragma once
// floats     formats of small floats, whose codes are a stream of bits.
#include "quantize/format.cuh"
#include <baracuda/fp8.cuh>
#include <baracuda/pairs.cuh>

namespace baracuda {

template <int EXPONENT, int FRACTION> struct SmallFloats : Grouped<SmallFloats<EXPONENT, FRACTION>> {
  static constexpr int bits = 1 + EXPONENT + FRACTION, run_unit = 8, part_unit = bits == 6 ? 2 : bits;
  template <class T> static constexpr bool has_pairs = bits == 4;

  template <int WORDS> static BARACUDA_D float number(const Vec<u32, WORDS>& words, int j) {
    if constexpr (bits == 8) {  // by way of f16, which holds them all
      const uint2 four = widen_four<conditional<EXPONENT == 4, e4m3, e5m2>>(words[j / 4]);
      const u32 two = j % 4 < 2 ? four.x : four.y;
      const float2 pair = __half22float2(*reinterpret_cast<const __half2*>(&two));
      return j % 2 ? pair.y : pair.x;
    } else {
      return value(upmost(words, j));
    }
  }

  // Of 4 bits: a code is the upper bits of a T whose exponent is off by a constant, which the scale puts right. T holds
  // the number, so the product is rounded once.
  template <class T> struct Fast {
    static constexpr int fraction = is_same<T, f16> ? 10 : 7;
    static constexpr u32 sizes = (7u << (fraction - FRACTION)) * 0x00010001u, signs = 0x80008000u;
    BARACUDA_D explicit Fast(const Stored&) {}

    // The scale with that constant, and whether T holds it.
    static BARACUDA_D bool make(float scale, float, uint2& out) {
      const float by = scale * (is_same<T, f16> ? 0x1p14f : 0x1p126f);
      out.x = pack_pair<T>(by, by);
      return lower_of<T>(out.x) == by && by - by == 0.0f;
    }
    // Of the codes (j, j + 4) of a word, which lie 16 bits apart.
    BARACUDA_D void pairs(u32 word, const uint2& numbers, u32 (&out)[4]) const {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int shift = fraction - FRACTION - 4 * j;
        const u32 size = (shift > 0 ? word << shift : word >> -shift) & sizes;
        out[j] = multiply_pairs<T>(size | (word << (12 - 4 * j) & signs), numbers.x);
      }
    }
  };

 private:
  // Code j at the top of a word, whose lower bits are others.
  template <int WORDS> static BARACUDA_D u32 upmost(const Vec<u32, WORDS>& words, int j) {
    const int word = bits * j / 32, end = bits * j % 32 + bits;
    return end <= 32 ? words[word] << (32 - end)
                     : __funnelshift_r(words[word], words[word + 1 < WORDS ? word + 1 : word], end - 32);
  }
  // As `SmallFloat::value`; the sign, which the shift repeats, stays at the top.
  static BARACUDA_D float value(u32 code) {
    constexpr u32 kept = 0x80000000u | ((1u << (bits - 1)) - 1) << (23 - FRACTION);
    constexpr u32 unit = (254 - SmallFloat<EXPONENT, FRACTION>::bias) << 23;
    return __uint_as_float(static_cast<u32>(static_cast<i32>(code) >> (8 - EXPONENT)) & kept) * __uint_as_float(unit);
  }
};

using Fp8E4M3 = SmallFloats<4, 3>;
using Fp8E5M2 = SmallFloats<5, 2>;
using Fp6E3M2 = SmallFloats<3, 2>;
using Fp6E2M3 = SmallFloats<2, 3>;
using Fp4E2M1 = SmallFloats<2, 1>;

}  // namespace baracuda
