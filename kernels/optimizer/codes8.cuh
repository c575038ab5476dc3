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

constexpr int code_block = 256, code_decades = 7;

template <bool SIGNED> struct CodeTable {
  static constexpr int zero = SIGNED ? 127 : 0;
  float value[256];

  // The code of part `part` of decade i, of positive values.
  static BARACUDA_D int first(int i) { return SIGNED ? 127 + (1 << i) : (2 << i) - 1; }
  static BARACUDA_D int parts(int i) { return SIGNED ? 1 << i : 2 << i; }

  static BARACUDA_D double decade(int i) {
    double top = 1.0;
    for (int k = code_decades - 1; k > i; --k) top *= 10.0;
    return 1.0 / top;
  }
  static BARACUDA_D float positive(int code) {
    if (code == 255) return 1.0f;
    int i = code_decades - 1;
    while (first(i) > code) --i;
    return static_cast<float>(decade(i) * (0.1 + 0.9 * ((code - first(i)) + 0.5) / parts(i)));
  }
  BARACUDA_D void fill(int thread, int threads) {
    for (int code = thread; code < 256; code += threads) {
      value[code] = code > zero ? positive(code) : code == zero ? 0.0f : -positive(254 - code);
    }
  }

  BARACUDA_D float between(int code) const { return 0.5f * (value[code] + value[code + 1]); }  // where codes change

  // The nearest value's code: the decade and part say about where, and its neighbours which. NaN is the code of 0.
  BARACUDA_D int code(float x) const {
    const float size = math::abs(x);
    int i = 0;
    float scale = 1e6f;
    if (size > 1e-6f) i = 1, scale = 1e5f;
    if (size > 1e-5f) i = 2, scale = 1e4f;
    if (size > 1e-4f) i = 3, scale = 1e3f;
    if (size > 1e-3f) i = 4, scale = 1e2f;
    if (size > 1e-2f) i = 5, scale = 1e1f;
    if (size > 1e-1f) i = 6, scale = 1.0f;
    const float part = (size * scale - 0.1f) * (static_cast<float>(parts(i)) / 0.9f);
    int found = first(i) + static_cast<int>(math::minimum(math::maximum(part, 0.0f), static_cast<float>(parts(i))));
    if (SIGNED && x < 0.0f) found = 254 - found;
    found = max(min(found, 255), 0);
    while (found < 255 && x > between(found)) ++found;
    while (found > 0 && x <= between(found - 1)) --found;
    return x == x ? found : zero;
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
BARACUDA_D Vec<float, N> decoded(const Table& table, const Vec<u8, N>& code, float scale) {
  Vec<float, N> x;
#pragma unroll
  for (int k = 0; k < N; ++k) x[k] = table.value[code[k]] * scale;
  return x;
}

// A lane's elements of a block, from `at` on; every lane of the warp calls. Beside NaN the scale is NaN, and so are the
// elements of the block from then on.
template <bool WIDE, class Table, int N>
BARACUDA_D void encode(const Table& table, const Vec<float, N>& y, u8* to, float* scales, i64 at, int left) {
  float most = 0.0f;
#pragma unroll
  for (int k = 0; k < N; ++k) {
    if (k < left) most = math::maximum(most, math::abs(y[k]));
  }
  most = warp_reduce<Max>(most);
  const float inverse = most > 0.0f ? 1.0f / most : 0.0f;
  Vec<u8, N> code;
#pragma unroll
  for (int k = 0; k < N; ++k) code[k] = static_cast<u8>(table.code(y[k] * inverse));
  store_vec<u8, N, WIDE>(to, code, left);
  if (lane_id() == 0 && left > 0) scales[at / code_block] = most;
}

}  // namespace baracuda
