#pragma once
// gguf_super   GGML's blocks of 256 values: Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, Q8_K, IQ4_XS.
//
// Value `at` of a block is value at % 32 of its run at / 32. A run of 32, or 8 of it, are decoded: all bits of a kind lie
// in neighbouring bytes then, at the same place of each.
#include "quantize/formats/gguf.cuh"

namespace baracuda {

// Where k stands: the block's bytes, the run, and the first value within it.
template <int BYTES> struct SuperPlace {
  const u8* block;
  int run, first;
  BARACUDA_D SuperPlace(const StoredRow& row, i64 k)
      : block(row.codes + k / 256 * BYTES), run(static_cast<int>(k % 256) / 32), first(static_cast<int>(k % 32)) {}
  BARACUDA_D int half(int h) const { return run * 2 + first / 16 + h; }  // number h of `halves`
};

// The halves of a run have a scale each; of 8 values all are in one half.
template <int N> constexpr int halves = N == 32 ? 2 : 1;
template <int N> constexpr int half_of(int j) { return N == 32 ? j / 16 : 0; }

// Bits from `shift` on of every byte of words, to bit `to` of the bytes.
template <int BITS, int WORDS> BARACUDA_D u32 bits_of(const Vec<u32, WORDS>& words, int i, int shift, int to = 0) {
  return (words[i] >> shift & each_byte((1u << BITS) - 1)) << to;
}

// 16 bytes of scales (lower half) and of minima (upper half), 64 of codes, float16 d and dmin.
struct Q2_K {
  template <int N> static BARACUDA_D void decode(const Stored& w, const StoredRow& row, i64 k, float (&x)[N]) {
    const SuperPlace<84> at(row, k);
    const u32 both = load_codes<4, 4>(at.block + 80, w.whole)[0];
    const float d = half_of_bits(both), dmin = half_of_bits(both >> 16);
    const auto words = load_codes<N, 4>(at.block + 16 + at.run / 4 * 32 + at.first, w.whole);
    float scale[halves<N>], least[halves<N>];
#pragma unroll
    for (int h = 0; h < halves<N>; ++h) {
      const u32 both = __ldg(at.block + at.half(h));
      scale[h] = d * small_whole(both & 15u), least[h] = dmin * small_whole(both >> 4);
    }
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const u32 codes = bits_of<2>(words, j / 4, at.run % 4 * 2);
      x[j] = scale[half_of<N>(j)] * byte_number(codes, j % 4) - least[half_of<N>(j)];
    }
  }
};

// 32 bytes of third bits (bit `run`), 64 of codes, 12 of scales of 6 bits, float16 d.
struct Q3_K {
  template <int N> static BARACUDA_D void decode(const Stored& w, const StoredRow& row, i64 k, float (&x)[N]) {
    const SuperPlace<110> at(row, k);
    const EvenBlock block(at.block, w.whole);
    const float d = block.half(108);
    const auto third = block.load<N, 0>(at.first), words = block.load<N, 0>(32 + at.run / 4 * 32 + at.first);
    float scale[halves<N>];
#pragma unroll
    for (int h = 0; h < halves<N>; ++h) {
      const int i = at.half(h);
      const u32 low = block.byte(96 + i % 8) >> (4 * (i / 8)) & 15u;
      const u32 high = block.byte(104 + i % 4) >> (2 * (i / 4)) & 3u;
      scale[h] = d * (small_whole(low | high << 4) - 32.0f);
    }
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const u32 codes = bits_of<2>(words, j / 4, at.run % 4 * 2) | bits_of<1>(third, j / 4, at.run, 2);
      x[j] = scale[half_of<N>(j)] * byte_number(codes, j % 4, 4.0f);
    }
  }
};

// Scale and minimum of a run among 12 bytes of 6 bits each, times d and dmin before them.
struct SixBits {
  float scale, least;
  BARACUDA_D SixBits(const u8* block, int run, bool whole) {
    const auto words = load_codes<16, 16>(block, whole);
    const u32 low = words[1] >> (8 * (run % 4)), mid = words[2] >> (8 * (run % 4)), high = words[3] >> (8 * (run % 4));
    const u32 s = run < 4 ? low & 63u : (high & 15u) | (low >> 2 & 48u);
    const u32 m = run < 4 ? mid & 63u : (high >> 4 & 15u) | (mid >> 2 & 48u);
    scale = half_of_bits(words[0]) * small_whole(s), least = half_of_bits(words[0] >> 16) * small_whole(m);
  }
};

// float16 d and dmin, 12 bytes of scales, with FIFTH 32 bytes of fifth bits (bit `run`), 128 of codes.
template <bool FIFTH> struct GgufFours {
  template <int N> static BARACUDA_D void decode(const Stored& w, const StoredRow& row, i64 k, float (&x)[N]) {
    const SuperPlace<FIFTH ? 176 : 144> at(row, k);
    const SixBits own(at.block, at.run, w.whole);
    constexpr int unit = N == 32 ? 16 : 8;
    const auto words = load_codes<N, unit>(at.block + (FIFTH ? 48 : 16) + at.run / 2 * 32 + at.first, w.whole);
    Vec<u32, N / 4> fifth;
    if constexpr (FIFTH) fifth = load_codes<N, unit>(at.block + 16 + at.first, w.whole);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      u32 codes = bits_of<4>(words, j / 4, at.run % 2 * 4);
      if constexpr (FIFTH) codes |= bits_of<1>(fifth, j / 4, at.run, 4);
      x[j] = own.scale * byte_number(codes, j % 4) - own.least;
    }
  }
};

using Q4_K = GgufFours<false>;
using Q5_K = GgufFours<true>;

// 128 bytes of lower halves, 64 of upper pairs of bits, 16 int8 scales, float16 d.
struct Q6_K {
  template <int N> static BARACUDA_D void decode(const Stored& w, const StoredRow& row, i64 k, float (&x)[N]) {
    const SuperPlace<210> at(row, k);
    const int part = at.run / 4, own = at.run % 4;
    const EvenBlock block(at.block, w.whole);
    const float d = block.half(208);
    const auto low = block.load<N, 0>(part * 64 + own % 2 * 32 + at.first);
    const auto high = block.load<N, 0>(128 + part * 32 + at.first);
    float scale[halves<N>];
#pragma unroll
    for (int h = 0; h < halves<N>; ++h) scale[h] = d * signed_byte(block.byte(192 + at.half(h)));
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const u32 codes = bits_of<4>(low, j / 4, own / 2 * 4) | bits_of<2>(high, j / 4, own * 2, 4);
      x[j] = scale[half_of<N>(j)] * byte_number(codes, j % 4, 32.0f);
    }
  }
};

// float32 d, 256 int8, sums of sixteen that are not read.
struct Q8_K {
  template <int N> static BARACUDA_D void decode(const Stored& w, const StoredRow& row, i64 k, float (&x)[N]) {
    const SuperPlace<292> at(row, k);
    const float d = __uint_as_float(load_codes<4, 4>(at.block, w.whole)[0]);
    const auto words = load_codes<N, 4>(at.block + 4 + at.run * 32 + at.first, w.whole);
#pragma unroll
    for (int j = 0; j < N; ++j) x[j] = d * flipped_byte(flip_signs(words[j / 4]), j % 4);
  }
};

// float16 d, upper bits of the scales (2 each), 4 bytes of their lower halves, 128 of codes as those of IQ4_NL.
struct IQ4_XS {
  template <int N> static BARACUDA_D void decode(const Stored& w, const StoredRow& row, i64 k, float (&x)[N]) {
    const SuperPlace<136> at(row, k);
    const auto own = load_codes<8, 8>(at.block, w.whole);
    const u32 high = own[0] >> (16 + 2 * at.run) & 3u, low = own[1] >> (4 * at.run) & 15u;
    const float scale = half_of_bits(own[0]) * (small_whole(low | high << 4) - 32.0f);
    const auto words = load_codes < N == 32 ? 16 : 8, 8 > (at.block + 8 + at.run * 16 + at.first % 16, w.whole);
    iq4_values(half_codes<N>(words, at.first), scale, x);
  }
};

}  // namespace baracuda
