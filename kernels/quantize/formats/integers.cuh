#pragma once
// integers   formats of whole numbers, whose codes are a stream of bits.
#include "quantize/format.cuh"
#include <baracuda/pairs.cuh>

namespace baracuda {

template <int BITS, bool SIGNED> struct Whole : Grouped<Whole<BITS, SIGNED>> {
  static constexpr int bits = BITS;
  static constexpr int run_unit = BITS == 8 ? 8 : BITS == 3 ? 4 : 4 * BITS, part_unit = BITS == 3 ? 1 : BITS;
  static constexpr u32 half = SIGNED ? 1u << (BITS - 1) : 0;  // which is added to a code to make it positive
  static constexpr bool has_zeros = true, is_shifted = true;
  template <class T> static constexpr bool has_pairs = BITS == 4;

  template <int WORDS> static BARACUDA_D float number(const Vec<u32, WORDS>& words, int j) {
    return Shifted::number(words, j) - Shifted::bias(j);
  }

  // Codes in the fraction of a float, where they lie if one of 4 bits does so: its unit is then the lowest bit of the code.
  struct Shifted {
    static constexpr int biases = BITS == 4 ? 4 : 1;
    static constexpr BARACUDA_D float bias(int j) {
      return static_cast<float>((BITS == 4 ? 1 << (23 - j % 4 * 4) : 1 << 23) + static_cast<int>(half));
    }
    template <int WORDS> static BARACUDA_D float number(const Vec<u32, WORDS>& words, int j) {
      if constexpr (BITS == 4) {
        const int at = j % 4 * 4;
        const u32 word = words[j / 8] >> (j % 8 / 4 * 16);
        return __uint_as_float((word & 15u << at) ^ (static_cast<u32>(150 - at) << 23 | half << at));
      } else if constexpr (BITS == 8) {
        return __uint_as_float(__byte_perm(words[j / 4] ^ half * 0x01010101u, 0x4b000000u, 0x7440u | j % 4));
      } else {
        return __uint_as_float((stream_code<BITS>(words, j) ^ half) | 0x4b000000u);
      }
    }
  };

  // (code - zero) · scale, rounded once, as a zero point that is a small whole number leaves the difference exact, and
  // what that is by a scale that T holds, float holds. Codes j and j + 4 of a word lie 16 bits apart.
  template <class T> struct Pairs {
    static constexpr u32 one = is_same<T, f16> ? 0x6400u : 0x4300u;  // 1024 or 128, whose last bit is 1
    u32 minus, scale;

    // Whether such values are exact; `zero` is a whole number that is not negative.
    BARACUDA_D bool set(float scale_, float zero) {
      const T held = from_acc<T>(scale_);
      scale = both_of(held);
      minus = both_of(from_acc<T>(-(zero + static_cast<float>((is_same<T, f16> ? 1024 : 128) + half))));
      return to_acc(held) == scale_ && zero <= 127.0f - half;
    }
    BARACUDA_D void get(u32 word, u32 (&pairs)[4]) const {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const u32 code = (word >> (4 * j) & 0x000f000fu) ^ (one | half) * 0x00010001u;
        pairs[j] = multiply_pairs<T>(add_pairs<T>(code, minus), scale);
      }
    }
  };
};

using Int8 = Whole<8, true>;
using UInt8 = Whole<8, false>;
using Int4 = Whole<4, true>;
using UInt4 = Whole<4, false>;
using UInt3 = Whole<3, false>;
using UInt2 = Whole<2, false>;

}  // namespace baracuda
