#pragma once
// integers   formats of whole numbers, whose codes are a stream of bits.
#include "quantize/format.cuh"

namespace baracuda {

template <int BITS, bool SIGNED> struct Whole : Grouped<Whole<BITS, SIGNED>> {
  static constexpr u32 half = SIGNED ? 1u << (BITS - 1) : 0;  // moves codes of two's complement above zero

  template <int N> static BARACUDA_D auto words(const Stored& w, const StoredRow& row, i64 k) {
    constexpr int bytes = N * BITS / 8, unit = BITS == 3 ? (N == format_run ? 4 : 1) : bytes < 16 ? bytes : 16;
    return load_codes < bytes, BITS == 8 ? 8 : unit > (row.codes + k / 8 * BITS, w.whole);
  }
  // The numbers, less a zero point that is a whole number up to 255: numbers of either 16-bit float, too.
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
};

using Int8 = Whole<8, true>;
using UInt8 = Whole<8, false>;
using Int4 = Whole<4, true>;
using UInt4 = Whole<4, false>;
using UInt3 = Whole<3, false>;
using UInt2 = Whole<2, false>;

}  // namespace baracuda
