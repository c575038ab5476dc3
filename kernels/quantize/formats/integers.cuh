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
    return Shifted()(words, j) - Shifted::bias(j);
  }
  // The numbers of all, less a zero point that is a whole number up to 255: numbers of either 16-bit float, too.
  static constexpr bool whole_numbers = true;
  template <int N, int WORDS>
  static BARACUDA_D void numbers(const Vec<u32, WORDS>& words, float (&x)[N], float zero = 0.0f) {
#pragma unroll
    for (int j = 0; j < N; ++j) {
      if constexpr (BITS == 3) {
        x[j] = small_whole(stream_code<BITS>(words, j)) - zero;
      } else {
        constexpr int of_byte = 8 / BITS, of_word = 4 * of_byte;
        const u32 four = (words[j / of_word] >> (BITS * (j % of_byte)) & each_byte((1u << BITS) - 1)) ^ each_byte(half);
        x[j] = byte_number(four, j % of_word / of_byte, static_cast<float>(half) + zero);
      }
    }
  }

  // Codes in the fraction of a float, of 4 bits two of a byte where they lie: the unit of the float is a code's lowest bit.
  // `known`: something that holds, which the compiler does not see: with two constants it makes two instructions of one.
  struct Shifted {
    static constexpr int biases = BITS == 4 ? 2 : 1;
    u32 upper[biases];
    BARACUDA_D explicit Shifted(bool known = true) {
#pragma unroll
      for (int i = 0; i < biases; ++i) upper[i] = known ? static_cast<u32>(150 - 4 * i) << 23 | half << (4 * i) : 0u;
    }
    static constexpr BARACUDA_D float bias(int j) {
      return static_cast<float>((1 << (23 - j % biases * 4)) + static_cast<int>(half));
    }
    template <int WORDS> BARACUDA_D float operator()(const Vec<u32, WORDS>& words, int j) const {
      if constexpr (BITS == 4) {
        return __uint_as_float((words[j / 8] >> (j % 8 / 2 * 8) & 15u << (j % 2 * 4)) ^ upper[j % 2]);
      } else if constexpr (BITS == 8) {
        return __uint_as_float(__byte_perm(words[j / 4] ^ half * 0x01010101u, 0x4b000000u, 0x7440u | j % 4));
      } else {
        return __uint_as_float(stream_code<BITS>(words, j) ^ upper[0]);
      }
    }
  };

  template <class T> struct Fast {
    static constexpr u32 one = is_same<T, f16> ? 0x6400u : 0x4300u;  // 1024 or 128, whose last bit is 1
    Shifted shifted;
    u32 upper;
    BARACUDA_D explicit Fast(const Stored& w) : shifted(w.scaled), upper(w.scaled ? (one | half) * 0x00010001u : 0u) {}

    // What `pairs` takes for a scale and a whole zero point that is not negative, and whether values are exact by it: a
    // small zero point leaves the difference to a code exact, and what that is by a scale that T holds, float holds.
    static BARACUDA_D bool make(float scale, float zero, uint2& out) {
      const float minus = -(zero + static_cast<float>((is_same<T, f16> ? 1024 : 128) + static_cast<int>(half)));
      out = make_uint2(pack_pair<T>(scale, scale), pack_pair<T>(minus, minus));
      return lower_of<T>(out.x) == scale && zero <= 127.0f - static_cast<float>(half);
    }
    // (code - zero) · scale of the codes (j, j + 4) of a word, which lie 16 bits apart.
    BARACUDA_D void pairs(u32 word, const uint2& numbers, u32 (&out)[4]) const {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const u32 code = (word >> (4 * j) & 0x000f000fu) ^ upper;
        out[j] = multiply_pairs<T>(add_pairs<T>(code, numbers.y), numbers.x);
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
