#pragma once
// codes8   states of optimizers in 8 bits: a sorted table of 256 values in [-1, 1] or [0, 1], and a scale for 256 elements.
//
// The dynamic map of Dettmers, Lewis, Shleifer and Zettlemoyer 2022: decade i of seven, up to 10^(i - 6), is cut into 2^i
// (unsigned: 2^(i + 1)) equal parts, whose middles are values; 0 and 1 are values besides. A value's code is that of the
// nearest one. A warp encodes a block: eight elements a lane.
#include <baracuda/math.cuh>
#include <baracuda/reduce.cuh>
#include <baracuda/vector.cuh>

namespace baracuda {

constexpr u32 code_block = 256;
constexpr int code_decades = 7;

// A sorted table's values, where its codes change, and a table of bins that finds a code without a search. Bins are the
// floats that have an exponent and the first `digits` digits in common, from 2^-octaves up to 1; none holds two places
// where codes change. A bin's word has the code of its first float in the upper byte, and in the lower ones what makes the
// float's bits, shifted and added, carry into it beyond that place.
template <bool SIGNED> struct CodeMap {
  static constexpr int zero = SIGNED ? 127 : 0, positives = 255 - zero;
  static constexpr int digits = SIGNED ? 6 : 7, octaves = SIGNED ? 22 : 23;
  static constexpr int rest = 23 - digits, bins = (octaves << digits) + 4;  // that of 1 is the last; whole 16 bytes
  static constexpr int shift = 24 - rest - 1;  // of a float's bits, so that the rest's highest is the 23rd
  static constexpr u32 least = static_cast<u32>(127 - octaves) << 23;  // the bits of the first bin's first float

  alignas(16) float value[256];
  alignas(16) u32 bin[bins];

  static BARACUDA_D constexpr float positive(int n) {
    if (n == positives) return 1.0f;
    int i = 0;
    while (n >= (SIGNED ? 2 << i : (4 << i) - 1)) ++i;
    const int parts = SIGNED ? 1 << i : 2 << i, part = n - (SIGNED ? 1 << i : (2 << i) - 1);
    double top = 1.0;
    for (int k = code_decades - 1; k > i; --k) top *= 10.0;
    return static_cast<float>(1.0 / top * (0.1 + 0.9 * (part + 0.5) / parts));
  }
  // The bits of a float in (2^-octaves, 1].
  static BARACUDA_D constexpr u32 bits(float x) {
    u32 exponent = 127;
    double size = x;
    while (size < 1.0) size *= 2.0, --exponent;
    return (exponent << 23) + static_cast<u32>((size - 1.0) * 8388608.0);
  }
  // The word of a bin where codes begin with `code` and change beyond `last` of the rest's digits; -1: they do not.
  static BARACUDA_D constexpr u32 word(u32 index, u32 code, i64 last) {
    const u32 carry = last < 0 ? 0 : (1u << 24) - (static_cast<u32>(last + 1) << shift);
    return (code << 24) + carry - ((least + (index << rest)) << shift);
  }
  static BARACUDA_D constexpr CodeMap made() {
    CodeMap map{};
    float below = 0.0f;
    u32 filled = 0, code = zero;  // bins that are done, and the code where the next one begins
    for (int n = 0; n <= positives; ++n) {
      const float here = n == 0 ? 0.0f : positive(n);
      map.value[zero + n] = here;
      if (SIGNED && n > 0 && n < positives) map.value[zero - n] = -here;
      if (n > 0) {
        const u32 at = bits(0.5f * (below + here)) - least;
        for (; filled < at >> rest; ++filled) map.bin[filled] = word(filled, code, -1);
        map.bin[filled] = word(filled, code, at & ((1u << rest) - 1));
        ++filled, ++code;
      }
      below = here;
    }
    for (; filled < static_cast<u32>(bins); ++filled) map.bin[filled] = word(filled, code, -1);
    return map;
  }
  static constexpr u32 highest() {
    return bits(0.5f * (positive(positives - 1) + 1.0f));
  }  // where the last code begins
};
template <bool SIGNED> static __device__ constexpr CodeMap<SIGNED> code_map = CodeMap<SIGNED>::made();

// A map in shared memory.
template <bool SIGNED> struct CodeTable {
  using Map = CodeMap<SIGNED>;
  Map map;

  BARACUDA_D void fill(int thread, int threads) {
    constexpr int words = static_cast<int>(sizeof(Map) / sizeof(uint4));
    const uint4* from = reinterpret_cast<const uint4*>(&code_map<SIGNED>);
    for (int i = thread; i < words; i += threads) reinterpret_cast<uint4*>(&map)[i] = from[i];
  }
  BARACUDA_D float value(u32 code) const { return map.value[code]; }

  // The code of the value nearest to x inverse, of two as near the lower one, in the upper byte. NaN is the code of 0.
  // Below 0 codes change with the number that is the middle, above 0 with the next one, and 1 has no opposite.
  BARACUDA_D u32 code(float x, float inverse) const {
    const bool negative = SIGNED && __float_as_int(x) < 0;
    u32 size = max(__float_as_uint(__saturatef((SIGNED ? math::abs(x) : x) * inverse)), Map::least);
    if (negative) size = min(size + 1, Map::highest());
    const u32 found = map.bin[(size >> Map::rest) - (Map::least >> Map::rest)] + (size << Map::shift);
    return negative ? 0xfeffffffu - found : found;
  }
};

struct NoTable {
  BARACUDA_D void fill(int, int) {}
};

// The tables that a kernel needs; the fields' names are those of the kinds.
template <bool SIGNED, bool UNSIGNED> struct CodeTables {
  conditional<SIGNED, CodeTable<true>, NoTable> both_signs;
  conditional<UNSIGNED, CodeTable<false>, NoTable> no_sign;
  BARACUDA_D void fill(int thread, int threads) { both_signs.fill(thread, threads), no_sign.fill(thread, threads); }
};

template <class Table, int N>
BARACUDA_D Vec<float, N> decoded(const Table& table, const Vec<u8, N>& codes, float scale) {
  Vec<float, N> x;
#pragma unroll
  for (int k = 0; k < N; k += 4) {
    const u32 four = reinterpret_cast<const u32*>(&codes)[k / 4];
#pragma unroll
    for (int i = 0; i < 4; ++i) x[k + i] = table.value(four >> (8 * i) & 0xffu) * scale;
  }
  return x;
}

// A lane's codes of its elements of a block, whose scale is written; every lane of the warp calls. Beside NaN the scale is
// NaN, and so are the elements of the block from then on. FULL: no elements are missing.
template <bool FULL, class Table, int N>
BARACUDA_D Vec<u8, N> encoded(const Table& table, Vec<float, N> y, float* scale, int left) {
  if (!FULL && left < N) {
#pragma unroll
    for (int k = 0; k < N; ++k) y[k] = k < left ? y[k] : 0.0f;
  }
  float most = math::abs(y[0]);
#pragma unroll
  for (int k = 1; k < N; ++k) most = math::maximum(most, math::abs(y[k]));
  most = warp_reduce<Max>(most);
  const float inverse = most > 0.0f ? 1.0f / most : 0.0f;
  Vec<u8, N> codes;
#pragma unroll
  for (int k = 0; k < N; k += 4) {
    u32 c[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) c[i] = table.code(y[k + i], inverse);
    const u32 four = __byte_perm(__byte_perm(c[0], c[1], 0x0073), __byte_perm(c[2], c[3], 0x0073), 0x5410);
    reinterpret_cast<u32*>(&codes)[k / 4] = four;
  }
  if (lane_id() == 0 && (FULL || left > 0)) *scale = most;
  return codes;
}

}  // namespace baracuda
