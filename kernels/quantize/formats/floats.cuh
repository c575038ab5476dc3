#pragma once
// floats     formats of small floats, whose codes are a stream of bits.
#include "quantize/format.cuh"

namespace baracuda {

template <int EXPONENT, int FRACTION> struct SmallFloats : Grouped<SmallFloats<EXPONENT, FRACTION>> {
  static constexpr int bits = 1 + EXPONENT + FRACTION, run_unit = 8, part_unit = bits == 6 ? 2 : bits;
  template <class T> static constexpr bool has_pairs = bits == 4;

  template <int WORDS> static BARACUDA_D float number(const Vec<u32, WORDS>& words, int j) {
    const u32 code = stream_code<bits>(words, j);
    if constexpr (bits < 8) return SmallFloat<EXPONENT, FRACTION>::value(code);
    else return coded_value < EXPONENT == 4 ? code_e4m3 : code_e5m2 > (static_cast<u8>(code));
  }

  // Of 4 bits: a code is the upper bits of a T whose exponent is off by a constant, which the scale puts right. T holds
  // the number, so the product is rounded once. Codes j and j + 4 of a word lie 16 bits apart.
  template <class T> struct Pairs {
    static constexpr int fraction = is_same<T, f16> ? 10 : 7;
    u32 scale;

    // Whether T holds the scale with that constant.
    BARACUDA_D bool set(float scale_, float) {
      const float by = scale_ * (is_same<T, f16> ? 0x1p14f : 0x1p126f);
      const T held = from_acc<T>(by);
      scale = both_of(held);
      return to_acc(held) == by && by - by == 0.0f;
    }
    BARACUDA_D void get(u32 word, u32 (&pairs)[4]) const {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int shift = fraction - FRACTION - 4 * j;
        const u32 size = (shift > 0 ? word << shift : word >> -shift) & (7u << (fraction - FRACTION)) * 0x00010001u;
        pairs[j] = multiply_pairs<T>(size | (word << (12 - 4 * j) & 0x80008000u), scale);
      }
    }
  };
};

using Fp8E4M3 = SmallFloats<4, 3>;
using Fp8E5M2 = SmallFloats<5, 2>;
using Fp6E3M2 = SmallFloats<3, 2>;
using Fp6E2M3 = SmallFloats<2, 3>;
using Fp4E2M1 = SmallFloats<2, 1>;

}  // namespace baracuda
