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
};

// Bits of byte j of words.
template <int WORDS> BARACUDA_D u32 bits_of(const Vec<u32, WORDS>& words, int j, int shift, u32 mask) {
  return words[j / 4] >> (8 * (j % 4) + shift) & mask;
}

// The halves of a run have a scale each; of 8 values all are in one half.
template <int N> BARACUDA_D int half_of(int first, int j) { return N == 32 ? j / 16 : first / 16; }

// 16 bytes of scales (lower half) and of minima (upper half), 64 of codes, float16 d and dmin.
struct Q2_K {
  template <int N> static BARACUDA_D void decode(const Stored& w, const StoredRow& row, i64 k, float (&x)[N]) {
    const SuperPlace<84> at(row, k);
    const float d = gguf_half(at.block + 80, w.whole), dmin = gguf_half(at.block + 82, w.whole);
    const auto words = load_codes<N, 4>(at.block + 16 + at.run / 4 * 32 + at.first, w.whole);
    float scale[2], least[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const u32 both = __ldg(at.block + at.run * 2 + h);
      scale[h] = d * small_whole(both & 15u), least[h] = dmin * small_whole(both >> 4);
    }
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const bool second = half_of<N>(at.first, j) != 0;
      x[j] = (second ? scale[1] : scale[0]) * small_whole(bits_of(words, j, at.run % 4 * 2, 3u)) -
             (second ? least[1] : least[0]);
    }
  }
};

// 32 bytes of third bits (bit `run`), 64 of codes, 12 of scales of 6 bits, float16 d.
struct Q3_K {
  template <int N> static BARACUDA_D void decode(const Stored& w, const StoredRow& row, i64 k, float (&x)[N]) {
    const SuperPlace<110> at(row, k);
    const float d = gguf_half(at.block + 108, w.whole);
    const auto third = load_codes<N, 2>(at.block + at.first, w.whole);
    const auto words = load_codes<N, 2>(at.block + 32 + at.run / 4 * 32 + at.first, w.whole);
    float scale[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int i = at.run * 2 + h;
      const u32 low = __ldg(at.block + 96 + i % 8) >> (4 * (i / 8)) & 15u;
      const u32 high = __ldg(at.block + 104 + i % 4) >> (2 * (i / 4)) & 3u;
      scale[h] = d * (small_whole(low | high << 4) - 32.0f);
    }
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const u32 code = bits_of(words, j, at.run % 4 * 2, 3u) | bits_of(third, j, at.run, 1u) << 2;
      x[j] = (half_of<N>(at.first, j) ? scale[1] : scale[0]) * (small_whole(code) - 4.0f);
    }
  }
};

// Scale and minimum of a run among 12 bytes of 6 bits each, times d and dmin before them.
struct SixBits {
  float scale, least;
  BARACUDA_D SixBits(const u8* block, int run, bool whole) {
    const u8* const from = block + 4;
    const float d = gguf_half(block, whole), dmin = gguf_half(block + 2, whole);
    u32 s, m;
    if (run < 4) {
      s = __ldg(from + run) & 63u, m = __ldg(from + run + 4) & 63u;
    } else {
      const u32 both = __ldg(from + run + 4);
      s = (both & 15u) | static_cast<u32>(__ldg(from + run - 4)) >> 6 << 4;
      m = both >> 4 | static_cast<u32>(__ldg(from + run)) >> 6 << 4;
    }
    scale = d * small_whole(s), least = dmin * small_whole(m);
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
      u32 code = bits_of(words, j, at.run % 2 * 4, 15u);
      if constexpr (FIFTH) code |= bits_of(fifth, j, at.run, 1u) << 4;
      x[j] = own.scale * small_whole(code) - own.least;
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
    const float d = gguf_half(at.block + 208, w.whole);
    const auto low = load_codes<N, 2>(at.block + part * 64 + own % 2 * 32 + at.first, w.whole);
    const auto high = load_codes<N, 2>(at.block + 128 + part * 32 + at.first, w.whole);
    float scale[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) scale[h] = d * signed_byte(__ldg(at.block + 192 + at.run * 2 + h), 0);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const u32 code = bits_of(low, j, own / 2 * 4, 15u) | bits_of(high, j, own * 2, 3u) << 4;
      x[j] = (half_of<N>(at.first, j) ? scale[1] : scale[0]) * (small_whole(code) - 32.0f);
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
    for (int j = 0; j < N; ++j) x[j] = d * signed_byte(words[j / 4], j % 4);
  }
};

// float16 d, upper bits of the scales (2 each), 4 bytes of their lower halves, 128 of codes as those of IQ4_NL.
struct IQ4_XS {
  template <int N> static BARACUDA_D void decode(const Stored& w, const StoredRow& row, i64 k, float (&x)[N]) {
    const SuperPlace<136> at(row, k);
    const u32 high = __ldg(at.block + 2 + at.run / 4) >> (2 * (at.run % 4)) & 3u;
    const u32 low = __ldg(at.block + 4 + at.run / 2) >> (4 * (at.run % 2)) & 15u;
    const float scale = gguf_half(at.block, w.whole) * (small_whole(low | high << 4) - 32.0f);
    const auto words = load_codes < N == 32 ? 16 : 8, 8 > (at.block + 8 + at.run * 16 + at.first % 16, w.whole);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const int place = N == 32 ? j % 16 : j, upper = N == 32 ? j / 16 : at.first / 16;
      x[j] = scale * iq4_value(bits_of(words, place, 4 * upper, 15u));
    }
  }
};

}  // namespace baracuda
