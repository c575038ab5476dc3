#pragma once
// gguf_ternary   GGML's ternary blocks of 256 values, TQ1_0 and TQ2_0, and its blocks of 32 values of MXFP4.
#include "quantize/formats/gguf_super.cuh"

namespace baracuda {

// 52 bytes of five digits of base 3 (the last four bytes of four), float16 d. Digit t of byte b is what stands above the
// point of 3 (b 3^t mod 256) / 256. Bytes of 32 have the digits t of 32 neighbours, then 16 bytes, then four.
struct TQ1_0 {
  template <int N> static BARACUDA_D void decode(const Stored& w, const StoredRow& row, i64 k, float (&x)[N]) {
    const SuperPlace<54> at(row, k);
    const EvenBlock block(at.block, w.whole);
    const float d = block.half(52);
#pragma unroll
    for (int i = 0; i < N / 4; ++i) {
      const int own = at.run * 32 + at.first + 4 * i;
      const int from = own < 160 ? own % 32 : own < 240 ? 32 + own % 16 : 48;
      const int turn = own < 160 ? own / 32 : own < 240 ? (own - 160) / 16 : (own - 240) / 4;
      const u32 power = turn == 0 ? 1 : turn == 1 ? 3 : turn == 2 ? 9 : turn == 3 ? 27 : 81;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const u32 code = (block.byte(from + j) * power & 255u) * 3u >> 8;
        x[4 * i + j] = d * (small_whole(code) - 1.0f);
      }
    }
  }
};

// 64 bytes of codes as those of Q2_K, float16 d.
struct TQ2_0 {
  template <int N> static BARACUDA_D void decode(const Stored& w, const StoredRow& row, i64 k, float (&x)[N]) {
    const SuperPlace<66> at(row, k);
    const EvenBlock block(at.block, w.whole);
    const float d = block.half(64);
    const auto words = block.load<N, 0>(at.run / 4 * 32 + at.first);
#pragma unroll
    for (int j = 0; j < N; ++j) x[j] = d * byte_number(bits_of<2>(words, j / 4, at.run % 4 * 2), j % 4, 1.0f);
  }
};

// A byte with the exponent of half the scale, then 16 bytes of E2M1 as `half_codes`. Blocks begin at any address.
struct GgufMxfp4 {
  template <int N> static BARACUDA_D void decode(const Stored& w, const StoredRow& row, i64 k, float (&x)[N]) {
    const u8* const block = row.codes + k / 32 * 17;
    const int first = static_cast<int>(k % 32);
    const u32 code = __ldg(block);
    const float half = __uint_as_float(code < 2 ? 0x200000u << code : (code - 1) << 23);
    const auto codes = half_codes<N>(load_codes < N == 32 ? 16 : 8, 1 > (block + 1 + first % 16, false), first);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const u32 own = codes[j / 4] >> (8 * (j % 4)) & 15u;
      // Twice the number, of a table of bytes; -0 does not count as a number of its own.
      const float twice = byte_number(__byte_perm(0x03020100u, 0x0c080604u, own & 7u), 0);
      x[j] = half * (own > 8 ? -twice : twice);
    }
  }
};

}  // namespace baracuda
