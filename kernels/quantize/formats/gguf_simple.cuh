#pragma once
// gguf_simple   GGML's blocks of 32 values: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q8_1, IQ4_NL.
#include "quantize/formats/gguf.cuh"

namespace baracuda {

// BYTES of a block of whole words, or else of one at an even address.
template <int BYTES, bool WORDS> BARACUDA_D Vec<u32, code_words(BYTES)> load_block(const u8* from, bool whole) {
  if constexpr (WORDS) return load_codes<BYTES, 4>(from, whole);
  else return load_even<BYTES>(from, whole);
}

// Four neighbouring bits as bits 4 of the bytes of a word.
BARACUDA_D u32 fifth_bits(u32 four) { return (four & 15u) * 0x02040810u & each_byte(16); }

// A block begins with float16 d, and with MIN float16 m, x = d · code + m; without, x = d (code - middle).
// FIFTH: then four bytes of which bit j is the fifth of code j. Last 16 bytes of `half_codes`.
template <bool MIN, bool FIFTH> struct GgufHalves {
  template <int N> static BARACUDA_D void decode(const Stored& w, const StoredRow& row, i64 k, float (&x)[N]) {
    constexpr int fifth = MIN ? 4 : 2, own = fifth + (FIFTH ? 4 : 0), bytes = own + 16;
    const u8* const block = row.codes + k / 32 * bytes;
    const int first = static_cast<int>(k % 32);
    const float d = gguf_half(block, w.whole), m = MIN ? gguf_half(block + 2, w.whole) : 0.0f;
    const auto words = load_block < N == 32 ? 16 : 8, MIN > (block + own + first % 16, w.whole);
    auto codes = half_codes<N>(words, first);
    if constexpr (FIFTH) {
      const u32 fifths = load_block<4, MIN>(block + fifth, w.whole)[0] >> first;
#pragma unroll
      for (int i = 0; i < N / 4; ++i) codes[i] |= fifth_bits(fifths >> (4 * i));
    }
#pragma unroll
    for (int j = 0; j < N; ++j) {
      if constexpr (MIN) x[j] = d * byte_number(codes[j / 4], j % 4) + m;
      else x[j] = d * byte_number(codes[j / 4], j % 4, FIFTH ? 16.0f : 8.0f);
    }
  }
};

using Q4_0 = GgufHalves<false, false>;
using Q4_1 = GgufHalves<true, false>;
using Q5_0 = GgufHalves<false, true>;
using Q5_1 = GgufHalves<true, true>;

// float16 d, with SUM two bytes of a sum, then 32 int8.
template <bool SUM> struct GgufBytes {
  template <int N> static BARACUDA_D void decode(const Stored& w, const StoredRow& row, i64 k, float (&x)[N]) {
    constexpr int own = SUM ? 4 : 2;
    const u8* const block = row.codes + k / 32 * (own + 32);
    const float d = gguf_half(block, w.whole);
    const auto words = load_block<N, SUM>(block + own + k % 32, w.whole);
#pragma unroll
    for (int j = 0; j < N; ++j) x[j] = d * flipped_byte(flip_signs(words[j / 4]), j % 4);
  }
};

using Q8_0 = GgufBytes<false>;
using Q8_1 = GgufBytes<true>;

// float16 d, then the codes of a table.
struct IQ4_NL {
  template <int N> static BARACUDA_D void decode(const Stored& w, const StoredRow& row, i64 k, float (&x)[N]) {
    const u8* const block = row.codes + k / 32 * 18;
    const int first = static_cast<int>(k % 32);
    const float d = gguf_half(block, w.whole);
    const auto words = load_even < N == 32 ? 16 : 8 > (block + 2 + first % 16, w.whole);
    iq4_values(half_codes<N>(words, first), d, x);
  }
};

}  // namespace baracuda
