#pragma once
// gguf_simple   GGML's blocks of 32 values: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q8_1, IQ4_NL.
#include "quantize/formats/gguf.cuh"

namespace baracuda {

// A block of whole words, and one that begins at any even address.
struct WordBlock {
  const u8* from;
  bool whole;
  BARACUDA_D WordBlock(const u8* block, bool whole) : from(block), whole(whole) {}
  BARACUDA_D float half(int at) const { return gguf_half(from + at, whole); }
  template <int BYTES, int REST> BARACUDA_D Vec<u32, code_words(BYTES)> load(int at) const {
    return load_codes<BYTES, 4>(from + at, whole);
  }
};
template <bool WORDS> using SimpleBlock = conditional<WORDS, WordBlock, EvenBlock>;

// Four neighbouring bits as bits 4 of the bytes of a word.
BARACUDA_D u32 fifth_bits(u32 four) { return (four & 15u) * 0x02040810u & each_byte(16); }

// A block begins with float16 d, and with MIN float16 m, x = d · code + m; without, x = d (code - middle).
// FIFTH: then four bytes of which bit j is the fifth of code j. Last 16 bytes of `half_codes`.
template <bool MIN, bool FIFTH> struct GgufHalves {
  template <int N> static BARACUDA_D void decode(const Stored& w, const StoredRow& row, i64 k, float (&x)[N]) {
    constexpr int fifth = MIN ? 4 : 2, own = fifth + (FIFTH ? 4 : 0), bytes = own + 16;
    const SimpleBlock<MIN> block(row.codes + k / 32 * bytes, w.whole);
    const int first = static_cast<int>(k % 32);
    const float d = block.half(0), m = MIN ? block.half(2) : 0.0f;
    const auto words = block.template load < N == 32 ? 16 : 8, own % 4 > (own + first % 16);
    auto codes = half_codes<N>(words, first);
    if constexpr (FIFTH) {
      const u32 fifths = block.template load<4, fifth % 4>(fifth)[0] >> first;
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
    const SimpleBlock<SUM> block(row.codes + k / 32 * (own + 32), w.whole);
    const float d = block.half(0);
    const auto words = block.template load<N, own % 4>(own + static_cast<int>(k % 32));
#pragma unroll
    for (int j = 0; j < N; ++j) x[j] = d * flipped_byte(flip_signs(words[j / 4]), j % 4);
  }
};

using Q8_0 = GgufBytes<false>;
using Q8_1 = GgufBytes<true>;

// float16 d, then the codes of a table.
struct IQ4_NL {
  template <int N> static BARACUDA_D void decode(const Stored& w, const StoredRow& row, i64 k, float (&x)[N]) {
    const EvenBlock block(row.codes + k / 32 * 18, w.whole);
    const int first = static_cast<int>(k % 32);
    const auto words = block.load < N == 32 ? 16 : 8, 2 > (2 + first % 16);
    iq4_values(half_codes<N>(words, first), block.half(0), x);
  }
};

}  // namespace baracuda
