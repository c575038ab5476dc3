#pragma once
// gguf       what GGML's blocks have in common. A block begins at any even address where `whole`, else at any.
//
// Codes of fewer bits than a byte are taken out four at a time, as the bytes of a word.
#include "quantize/format.cuh"

namespace baracuda {

BARACUDA_D float half_of_bits(u32 bits) { return widen(__ushort_as_half(static_cast<u16>(bits))); }
BARACUDA_D float gguf_half(const u8* from, bool whole) {
  if (whole) return half_of_bits(__ldg(reinterpret_cast<const u16*>(from)));
  return half_of_bits(__ldg(from) | static_cast<u32>(__ldg(from + 1)) << 8);
}

// A block at an even address, which is read by the words that have any of its bytes: where `whole`, the array is one of
// words.
struct EvenBlock {
  const u8* from;  // the block, or two bytes before it
  u32 odd;         // those bytes
  bool whole;
  BARACUDA_D EvenBlock(const u8* block, bool whole)
      : odd(whole ? static_cast<u32>(reinterpret_cast<u64>(block)) & 2u : 0), whole(whole) {
    from = block - odd;
  }
  BARACUDA_D float half(int at) const { return gguf_half(from + odd + at, whole); }
  BARACUDA_D u32 byte(int at) const { return __ldg(from + odd + at); }
  // BYTES from `at` on, as `load_codes` has them. REST is at % 4; where it is 0 the block goes on for two bytes more.
  template <int BYTES, int REST> BARACUDA_D Vec<u32, code_words(BYTES)> load(int at) const {
    if (!whole) return load_codes<BYTES, 2>(from + at, false);
    const u32* const words = reinterpret_cast<const u32*>(from + (at - REST));
    const u32 bytes = 0x3210u + (REST + odd) * 0x1111u;
    Vec<u32, code_words(BYTES)> out;
    u32 low = __ldg(words);
#pragma unroll
    for (int i = 0; i < BYTES / 4; ++i) {
      const u32 high = __ldg(words + i + 1);
      out[i] = __byte_perm(low, high, bytes);
      low = high;
    }
    return out;
  }
};

BARACUDA_D float signed_byte(u32 byte) { return flipped_byte(flip_signs(byte), 0); }

// The codes of the N values that were asked for, the first of which is value `first` of 32. Byte j of 16 has the code of
// value j in its lower half and that of value j + 16 in its upper half.
template <int N> BARACUDA_D Vec<u32, N / 4> half_codes(const Vec<u32, N == 32 ? 4 : 2>& words, int first) {
  Vec<u32, N / 4> out;
#pragma unroll
  for (int i = 0; i < N / 4; ++i) {
    out[i] = words[N == 32 ? i % 4 : i] >> (N == 32 ? i / 4 * 4 : first / 16 * 4) & each_byte(15);
  }
  return out;
}

// The table of IQ4_NL and IQ4_XS, as bytes above -128, four a word.
constexpr u32 iq4_bytes[4] = {0x3f2d1801u, 0x766a5d4fu, 0xa6998d81u, 0xf1d9c5b5u};
BARACUDA_D float iq4_value(u32 code) {
  const u32 low = __byte_perm(iq4_bytes[0], iq4_bytes[1], code & 7u),
            high = __byte_perm(iq4_bytes[2], iq4_bytes[3], code & 7u);
  return flipped_byte(code & 8u ? high : low, 0);
}
// Those that eight codes name.
BARACUDA_D void look_iq4(u32& first, u32& second) {
  const u32 codes = __byte_perm(first | first >> 4, second | second >> 4, 0x6420);  // as neighbours of 4 bits
  const u32 of_half = codes & 0x77777777u, upper = (codes >> 1 & 0x44444444u) | 0x32103210u;
  const auto four = [](u32 of_half, u32 upper) {
    return __byte_perm(__byte_perm(iq4_bytes[0], iq4_bytes[1], of_half),
                       __byte_perm(iq4_bytes[2], iq4_bytes[3], of_half), upper);
  };
  first = four(of_half, upper), second = four(of_half >> 16, upper >> 16);
}

template <int N> BARACUDA_D void iq4_values(Vec<u32, N / 4> codes, float scale, float (&x)[N]) {
#pragma unroll
  for (int i = 0; i < N / 4; i += 2) look_iq4(codes[i], codes[i + 1]);
#pragma unroll
  for (int j = 0; j < N; ++j) x[j] = scale * flipped_byte(codes[j / 4], j % 4);
}

}  // namespace baracuda
