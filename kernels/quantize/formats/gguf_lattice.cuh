#pragma once
// gguf_lattice   GGML's blocks of 256 values whose codes name points of a lattice: IQ1_S, IQ1_M, IQ2_XXS … IQ3_S.
//
// A unit has the points of its format's lattice as `lattice`, 16 bits each, which the page prints before it. A part of a
// run is 8 values: a point of 8 numbers, or two of 4. What a run of 32 has in common is read once.
#include "quantize/formats/gguf_super.cuh"

namespace baracuda {

namespace gguf_lattice {

BARACUDA_D u32 point(u32 at) { return __ldg(lattice + at); }
// Byte j of the four that the bits of a point name, 2 bits each, among the bytes of `levels`.
BARACUDA_D u32 of_three(u32 eight, u32 levels) {
  const u32 fours = (eight | eight << 4) & 0x0f0fu;
  return __byte_perm(levels, 0, (fours | fours << 2) & 0x3333u);
}
// Eight signs of which an even number is negative, by the first seven.
BARACUDA_D u32 even_signs(u32 seven) { return seven | (__popc(seven) & 1u) << 7; }
BARACUDA_D u32 two_bytes(const EvenBlock& block, int at) { return block.byte(at) | block.byte(at + 1) << 8; }
template <int WORDS> BARACUDA_D u32 word_of(const Vec<u32, WORDS>& words, int i) {
  u32 found = words[0];
#pragma unroll
  for (int j = 1; j < WORDS; ++j) found = i == j ? words[j] : found;
  return found;
}

// The values of a part: the numbers of two words, with signs.
BARACUDA_D void put_signed(u32 low, u32 high, u32 signs, float scale, float* x) {
#pragma unroll
  for (int j = 0; j < format_part; ++j) {
    const float size = scale * byte_number(j < 4 ? low : high, j % 4);
    x[j] = __uint_as_float(__float_as_uint(size) ^ (signs << (31 - j) & 0x80000000u));
  }
}
BARACUDA_D void put_eight(u32 point, u32 signs, float scale, float* x) {
  constexpr u32 levels = 0x2b1908u;
  put_signed(of_three(point & 255u, levels), of_three(point >> 8, levels), signs, scale, x);
}
BARACUDA_D void put_shifted(u32 point, bool down, float scale, float* x) {
  const u32 low = of_three(point & 255u, 0x20100u), high = of_three(point >> 8, 0x20100u);
  const float shift = down ? -0.125f : 0.125f;
#pragma unroll
  for (int j = 0; j < format_part; ++j) x[j] = scale * (byte_number(j < 4 ? low : high, j % 4, 1.0f) + shift);
}
BARACUDA_D float fine(float d, u32 code, float unit) { return d * (0.5f + small_whole(code)) * unit; }
BARACUDA_D float odd(float d, u32 code) { return d * (2.0f * small_whole(code) + 1.0f); }

}  // namespace gguf_lattice

// R: what is read of a run, in a block of R::bytes; put(part, x) makes the values of a part.
template <class R> struct GgufLattice {
  template <int N> static BARACUDA_D void decode(const Stored& w, const StoredRow& row, i64 k, float (&x)[N]) {
    const SuperPlace<R::bytes> at(row, k);
    const R run(EvenBlock(at.block, w.whole), at.run);
#pragma unroll
    for (int i = 0; i < N / format_part; ++i) run.put(at.first / format_part + i, x + i * format_part);
  }
};

namespace gguf_lattice {

// float16 d, for each run four bytes of points, and four times 7 bits of signs below 4 of the scale.
struct Iq2Xxs {
  static constexpr int bytes = 66;
  u32 points, signs;
  float scale;
  BARACUDA_D Iq2Xxs(const EvenBlock& block, int run) {
    const auto words = block.load<8, 2>(2 + 8 * run);
    points = words[0], signs = words[1], scale = fine(block.half(0), signs >> 28, 0.25f);
  }
  BARACUDA_D void put(int part, float* x) const {
    put_eight(point(points >> (8 * part) & 255u), even_signs(signs >> (7 * part) & 127u), scale, x);
  }
};

// float16 d, for each part 9 bits of a point and 7 of signs, for each half of a run 4 bits of the scale.
struct Iq2Xs {
  static constexpr int bytes = 74;
  Vec<u32, 2> words;
  float d;
  u32 scales;
  BARACUDA_D Iq2Xs(const EvenBlock& block, int run)
      : words(block.load<8, 2>(2 + 8 * run)), d(block.half(0)), scales(block.byte(66 + run)) {}
  BARACUDA_D void put(int part, float* x) const {
    const u32 own = word_of(words, part / 2) >> (16 * (part % 2)) & 0xffffu;
    put_eight(point(own & 511u), even_signs(own >> 9), fine(d, scales >> (4 * (part / 2)) & 15u, 0.25f), x);
  }
};

// float16 d, the lower bytes of the points, 32 bytes of signs, two upper bits of the points, scales as those of IQ2_XS.
struct Iq2S {
  static constexpr int bytes = 82;
  u32 low, signs, high, scales;
  float d;
  BARACUDA_D Iq2S(const EvenBlock& block, int run)
      : low(block.load<4, 2>(2 + 4 * run)[0]), signs(block.load<4, 2>(34 + 4 * run)[0]), high(block.byte(66 + run)),
        scales(block.byte(74 + run)), d(block.half(0)) {}
  BARACUDA_D void put(int part, float* x) const {
    const u32 at = (low >> (8 * part) & 255u) | (high >> (2 * part) & 3u) << 8;
    put_eight(point(at), signs >> (8 * part), fine(d, scales >> (4 * (part / 2)) & 15u, 0.25f), x);
  }
};

// float16 d, 64 bytes of points, for each run four times 7 bits of signs below 4 of the scale.
struct Iq3Xxs {
  static constexpr int bytes = 98;
  Vec<u32, 2> points;
  u32 signs;
  float scale;
  BARACUDA_D Iq3Xxs(const EvenBlock& block, int run)
      : points(block.load<8, 2>(2 + 8 * run)), signs(block.load<4, 2>(66 + 4 * run)[0]) {
    scale = fine(block.half(0), signs >> 28, 0.5f);
  }
  static BARACUDA_D u32 four(u32 at) { return __byte_perm(0x1c140c04u, 0x3e342c24u, point(at)); }
  BARACUDA_D void put(int part, float* x) const {
    const u32 two = word_of(points, part / 2) >> (16 * (part % 2));
    put_signed(four(two & 255u), four(two >> 8 & 255u), even_signs(signs >> (7 * part) & 127u), scale, x);
  }
};

// float16 d, lower bytes of the points, an upper bit of each, 32 bytes of signs, for each run 4 bits of the scale.
struct Iq3S {
  static constexpr int bytes = 110;
  Vec<u32, 2> low;
  u32 high, signs;
  float scale;
  BARACUDA_D Iq3S(const EvenBlock& block, int run)
      : low(block.load<8, 2>(2 + 8 * run)), high(block.byte(66 + run)), signs(block.load<4, 2>(74 + 4 * run)[0]),
        scale(odd(block.half(0), block.byte(106 + run / 2) >> (4 * (run % 2)) & 15u)) {}
  static BARACUDA_D u32 four(u32 at) { return __byte_perm(0x07050301u, 0x0f0d0b09u, point(at)); }
  BARACUDA_D void put(int part, float* x) const {
    const u32 two = word_of(low, part / 2) >> (16 * (part % 2)), upper = high >> (2 * part);
    put_signed(four((two & 255u) | (upper & 1u) << 8), four((two >> 8 & 255u) | (upper & 2u) << 7), signs >> (8 * part),
               scale, x);
  }
};

// float16 d, lower bytes of the points, for each run four times three upper bits, 3 bits of the scale and the shift's sign.
struct Iq1S {
  static constexpr int bytes = 50;
  u32 low, high;
  float scale;
  BARACUDA_D Iq1S(const EvenBlock& block, int run)
      : low(block.load<4, 2>(2 + 4 * run)[0]), high(two_bytes(block, 34 + 2 * run)),
        scale(odd(block.half(0), high >> 12 & 7u)) {}
  BARACUDA_D void put(int part, float* x) const {
    const u32 at = (low >> (8 * part) & 255u) | (high >> (3 * part) & 7u) << 8;
    put_shifted(point(at), (high & 0x8000u) != 0, scale, x);
  }
};

// Lower bytes of the points, for each part three upper bits and the shift's sign, then four times 12 bits of scales, 3
// for each half of a run, below 4 of float16 d.
struct Iq1M {
  static constexpr int bytes = 56;
  u32 low, high, scales;
  float d;
  BARACUDA_D Iq1M(const EvenBlock& block, int run)
      : low(block.load<4, 0>(4 * run)[0]), high(two_bytes(block, 32 + 2 * run)) {
    const auto own = load_codes<8, 8>(block.from + 48, block.whole);
    const u32 first = own[0], second = own[1];
    d = half_of_bits((first >> 12 & 0xfu) | (first >> 24 & 0xf0u) | (second >> 4 & 0xf00u) | (second >> 16 & 0xf000u));
    scales = (run < 4 ? first : second) >> (16 * (run / 2 % 2) + 6 * (run % 2));
  }
  BARACUDA_D void put(int part, float* x) const {
    const u32 upper = high >> (4 * part), at = (low >> (8 * part) & 255u) | (upper & 7u) << 8;
    put_shifted(point(at), (upper & 8u) != 0, odd(d, scales >> (3 * (part / 2)) & 7u), x);
  }
};

}  // namespace gguf_lattice

using IQ1_S = GgufLattice<gguf_lattice::Iq1S>;
using IQ1_M = GgufLattice<gguf_lattice::Iq1M>;
using IQ2_XXS = GgufLattice<gguf_lattice::Iq2Xxs>;
using IQ2_XS = GgufLattice<gguf_lattice::Iq2Xs>;
using IQ2_S = GgufLattice<gguf_lattice::Iq2S>;
using IQ3_XXS = GgufLattice<gguf_lattice::Iq3Xxs>;
using IQ3_S = GgufLattice<gguf_lattice::Iq3S>;

}  // namespace baracuda
