#pragma once
// format     matrices in low-bit formats as they are stored, and what every format offers to the ops over them.
//
// A stored matrix W [batch, n, k] is rows of codes and, with most formats, numbers for groups of a row: scales and zero
// points. A format is a struct with
//   template <int N> static void decode(const Stored&, const StoredRow&, i64 k, float (&x)[N]);
// which makes the values k … k + N - 1 of a row; N is format_part, which is decoded together where a run is not whole, or
// format_run, which products take at once; k is a multiple of N, and the row has them all. Values are
// float32 numbers, whose operations and their order are those of `decode` on the format's page in Python.
// Formats whose groups lie beside the codes derive from `Grouped` and offer
//   bits                                               of a code; run_unit, part_unit: bytes of the accesses to 32 and 8 codes
//   template <int N> static float number(const Vec<u32, N>& words, int j);   that code j of words means
// and, for products by runs of 32:
//   Decoder   makes the same numbers, by all lanes of a warp together
//   Fast<T>   with is_shifted: numbers that are too large by constants, which a whole zero point is taken off with;
//             with has_pairs<T>: eight values at once in T, for scales and zero points that T holds
#include "quantize/format_number.cuh"
#include <baracuda/byte_numbers.cuh>
#include <baracuda/convert.cuh>
#include <baracuda/math.cuh>
#include <baracuda/vector.cuh>

namespace baracuda {

// The parts of a stored matrix. Steps are of batch, row and group, in elements of each part; codes are bytes.
struct Stored {
  const u8* codes;
  const void *scales, *zeros;
  const i32* index;  // the group of each column, or null where groups are neighbours
  const i64 *code_steps, *scale_steps, *zero_steps;
  u32 group, groups, row_group;
  int scale_code, zero_code;
  float scale;
  bool whole, scaled;

  // The group of column k, where columns say which.
  BARACUDA_D u32 group_of(i64 k) const { return min(static_cast<u32>(max(__ldg(index + k), 0)), groups - 1); }

  template <class P>
  BARACUDA_D explicit Stored(const P& p)
      : codes(static_cast<const u8*>(p.codes)), scales(p.scales), zeros(p.zeros),
        index(static_cast<const i32*>(p.index)), code_steps(p.code_steps), scale_steps(p.scale_steps),
        zero_steps(p.zero_steps), group(p.group), groups(p.groups), row_group(p.row_group), scale_code(p.scale_code),
        zero_code(p.zero_code), scale(static_cast<float>(p.scale())), whole(p.whole != 0), scaled(p.scaled != 0) {}
};

// Where a row's parts begin.
struct StoredRow {
  const u8* codes;
  i64 scale, zero;
  BARACUDA_D StoredRow(const Stored& w, i64 batch, i64 row) {
    const i64 of = w.row_group == 1 ? row : static_cast<u32>(row) / w.row_group;
    codes = w.codes + batch * w.code_steps[0] + row * w.code_steps[1];
    scale = batch * w.scale_steps[0] + of * w.scale_steps[1];
    zero = batch * w.zero_steps[0] + of * w.zero_steps[1];
  }
};

constexpr int code_words(int bytes) { return bytes <= 4 ? 1 : bytes <= 8 ? 2 : bytes <= 16 ? 4 : 8; }

// BYTES of codes as words, the first byte lowest: in accesses of UNIT bytes where the codes lie so (`whole`), else of 1.
template <int BYTES, int UNIT> BARACUDA_D Vec<u32, code_words(BYTES)> load_codes(const u8* from, bool whole) {
  static_assert(BYTES % UNIT == 0 && BYTES <= 32, "whole accesses of a run");
  Vec<u32, code_words(BYTES)> out;
  if (whole) {
    using W = Word<UNIT>;
#pragma unroll
    for (int i = 0; i < BYTES / UNIT; ++i) {
      reinterpret_cast<W*>(&out)[i] = __ldg(reinterpret_cast<const W*>(from) + i);
    }
  } else {
#pragma unroll
    for (int i = 0; i < BYTES; ++i) {
      const u32 byte = __ldg(from + i);
      out[i / 4] = i % 4 ? out[i / 4] | byte << (8 * (i % 4)) : byte;
    }
  }
  return out;
}

// Code j of a stream of codes of BITS each, from the lowest bit of the first word on.
template <int BITS, int WORDS> BARACUDA_D u32 stream_code(const Vec<u32, WORDS>& words, int j) {
  const int bit = BITS * j, word = bit / 32, shift = bit % 32;
  const u32 low = words[word] >> shift;
  return (shift + BITS > 32 ? low | words[word + 1 < WORDS ? word + 1 : word] << (32 - shift) : low) &
         ((1u << BITS) - 1);
}

// A whole number below 2^23 as a float, without a conversion, which is slow: the lower bits of 2^23.
BARACUDA_D float small_whole(u32 x) { return __uint_as_float(x | 0x4b000000u) - 0x1p23f; }

// Formats with scales, and zero points where there are any, beside the codes: x = (code - zero) · scale.
template <class F> struct Grouped {
  static constexpr bool has_zeros = false, is_shifted = false;
  template <class T> static constexpr bool has_pairs = false;
  struct Shifted {};
  template <class T> struct Fast {
    BARACUDA_D explicit Fast(const Stored&) {}
  };

  // The numbers of codes that lie in words.
  struct Decoder {
    template <int WORDS> BARACUDA_D float operator()(const Vec<u32, WORDS>& words, int j) const {
      return F::number(words, j);
    }
  };

  template <int N> static BARACUDA_D auto words(const Stored& w, const StoredRow& row, i64 k) {
    constexpr int unit = N == format_run ? F::run_unit : F::part_unit;
    return load_codes<N * F::bits / 8, unit>(row.codes + k / 8 * F::bits, w.whole);
  }
  template <int N, int WORDS> static BARACUDA_D void numbers(const Vec<u32, WORDS>& words, float (&x)[N]) {
#pragma unroll
    for (int j = 0; j < N; ++j) x[j] = F::number(words, j);
  }
  template <int N> static BARACUDA_D void codes(const Stored& w, const StoredRow& row, i64 k, float (&x)[N]) {
    F::numbers(F::template words<N>(w, row, k), x);
  }
  template <int N> static BARACUDA_D void decode(const Stored& w, const StoredRow& row, i64 k, float (&x)[N]) {
    codes(w, row, k, x);
    if (w.index != nullptr) {
#pragma unroll
      for (int j = 0; j < N; ++j) {
        scale_some<1>(w, row, w.group_of(k + j), x, j);
      }
    } else if (N == format_part || w.group % N == 0) {
      scale_some<N>(w, row, static_cast<u32>(k) / w.group, x, 0);
    } else {
#pragma unroll
      for (int j = 0; j < N; j += format_part) scale_some<format_part>(w, row, static_cast<u32>(k + j) / w.group, x, j);
    }
  }

 private:
  template <int COUNT, int N>
  static BARACUDA_D void scale_some(const Stored& w, const StoredRow& row, u32 group, float (&x)[N], int from) {
    const float held = format_number(w.scales, w.scale_code, row.scale + group * w.scale_steps[2]);
    const float scale = w.scaled ? held * w.scale : held;
    const float zero =
        w.zeros == nullptr ? 0.0f : format_number(w.zeros, w.zero_code, row.zero + group * w.zero_steps[2]);
#pragma unroll
    for (int j = 0; j < COUNT; ++j) x[from + j] = (x[from + j] - zero) * scale;
  }
};

}  // namespace baracuda
