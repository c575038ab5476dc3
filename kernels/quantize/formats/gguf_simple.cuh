#pragma once
// gguf_simple   GGML's blocks of 32 values: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q8_1, IQ4_NL.
//
// Of 4-bit codes byte j of a block has that of value j in its lower half and that of value j + 16 in its upper half.
#include "quantize/formats/gguf.cuh"

namespace baracuda {

// The code of value j of the N that were asked for, the first of which is value `first` of the block.
template <int N> BARACUDA_D u32 half_code(const Vec<u32, N == 32 ? 4 : 2>& words, int first, int j) {
  const int place = N == 32 ? j % 16 : j, upper = N == 32 ? j / 16 : first / 16;
  return words[place / 4] >> (8 * (place % 4) + 4 * upper) & 15u;
}

// BYTES: of a block, that begins with float16 d, and with MIN float16 m, x = d · code + m; without, x = d (code - middle).
// FIFTH: then four bytes of which bit j is the fifth of code j. UNIT: bytes of the accesses that a block allows.
template <int BYTES, bool MIN, bool FIFTH, int UNIT> struct GgufHalves {
  template <int N> static BARACUDA_D void decode(const Stored& w, const StoredRow& row, i64 k, float (&x)[N]) {
    constexpr int fifth = MIN ? 4 : 2, codes = fifth + (FIFTH ? 4 : 0);
    const u8* const block = row.codes + k / 32 * BYTES;
    const int first = static_cast<int>(k % 32);
    const float d = gguf_half(block, w.whole), m = MIN ? gguf_half(block + 2, w.whole) : 0.0f;
    const u32 fifths = FIFTH ? load_codes<4, UNIT>(block + fifth, w.whole)[0] >> first : 0;
    const auto words = load_codes < N == 32 ? 16 : 8, UNIT > (block + codes + first % 16, w.whole);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const float code = small_whole(half_code<N>(words, first, j) | (fifths >> j & 1u) << 4);
      if constexpr (MIN) x[j] = d * code + m;
      else x[j] = d * (code - (FIFTH ? 16.0f : 8.0f));
    }
  }
};

using Q4_0 = GgufHalves<18, false, false, 2>;
using Q4_1 = GgufHalves<20, true, false, 4>;
using Q5_0 = GgufHalves<22, false, true, 2>;
using Q5_1 = GgufHalves<24, true, true, 4>;

// float16 d, with BYTES = 36 two bytes of a sum, then 32 int8.
template <int BYTES> struct GgufBytes {
  template <int N> static BARACUDA_D void decode(const Stored& w, const StoredRow& row, i64 k, float (&x)[N]) {
    const u8* const block = row.codes + k / 32 * BYTES;
    const float d = gguf_half(block, w.whole);
    const auto words = load_codes < N, BYTES == 36 ? 4 : 2 > (block + BYTES - 32 + k % 32, w.whole);
#pragma unroll
    for (int j = 0; j < N; ++j) x[j] = d * signed_byte(words[j / 4], j % 4);
  }
};

using Q8_0 = GgufBytes<34>;
using Q8_1 = GgufBytes<36>;

// float16 d, then the codes of a table.
struct IQ4_NL {
  template <int N> static BARACUDA_D void decode(const Stored& w, const StoredRow& row, i64 k, float (&x)[N]) {
    const u8* const block = row.codes + k / 32 * 18;
    const int first = static_cast<int>(k % 32);
    const float d = gguf_half(block, w.whole);
    const auto words = load_codes < N == 32 ? 16 : 8, 2 > (block + 2 + first % 16, w.whole);
#pragma unroll
    for (int j = 0; j < N; ++j) x[j] = d * iq4_value(half_code<N>(words, first, j));
  }
};

}  // namespace baracuda
