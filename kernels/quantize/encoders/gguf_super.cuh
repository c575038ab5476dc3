#pragma once
// gguf_super   encoders of GGML's blocks of 256 but Q8_K: those with a scale for each group, which is searched for, and
//              the ternary ones.
//
// A lane has 16 neighbours of a block: a group, or half of one, of which its two lanes then find the same. Sums are taken
// in the order of the numbers. Operations are those of `gguf_searches.py`, in its order. Codes meet in shared memory, as
// a byte holds those of several lanes.
#include "quantize/encoders/gguf.cuh"

namespace baracuda {

namespace gguf {

constexpr int super_lanes = 16;

BARACUDA_D float nearest(float y, float low, float high) { return fminf(fmaxf(math::rint(known(y)), low), high); }
BARACUDA_D float ratio(float a, float b) { return b > 0.0f ? known(a / b) : 0.0f; }
BARACUDA_D float of_lane(float x, int lane) { return shuffle<super_lanes>(x, lane); }
BARACUDA_D u32 of_lane(u32 x, int lane) { return shuffle<super_lanes>(x, lane); }

// The numbers of a lane's group, NaN as 0.
template <int N> BARACUDA_D void group_of(Values& x, int own, float (&group)[N]) {
#pragma unroll
  for (int j = 0; j < each; ++j) x[j] = known(x[j]);
  if constexpr (N == each) {
#pragma unroll
    for (int j = 0; j < each; ++j) group[j] = x[j];
  } else {
#pragma unroll
    for (int j = 0; j < each; ++j) {
      const float other = shuffle_xor(x[j], 1);
      group[j] = own % 2 ? other : x[j], group[each + j] = own % 2 ? x[j] : other;
    }
  }
}

// Of a block's lanes the largest number above 0, and the first one farthest from it.
BARACUDA_D float most_of_lanes(float x) {
  float most = 0.0f;
#pragma unroll
  for (int i = 0; i < super_lanes; ++i) {
    const float one = of_lane(x, i);
    most = one > most ? one : most;
  }
  return most;
}
BARACUDA_D float farthest_of_lanes(float x) {
  float far = 0.0f;
#pragma unroll
  for (int i = 0; i < super_lanes; ++i) {
    const float one = of_lane(x, i);
    far = fabsf(one) > fabsf(far) ? one : far;
  }
  return far;
}
template <int N> BARACUDA_D float first_farthest(const float (&x)[N]) {
  float far = 0.0f;
#pragma unroll
  for (int j = 0; j < N; ++j) far = fabsf(x[j]) > fabsf(far) ? x[j] : far;
  return far;
}

// x ≈ scale · code + least, least at most 0, codes 0 to `top`, for the least error by weights; SIZES: of sizes, else of squares.
struct Line {
  float scale, least;
};
template <bool SIZES, int N, class W>
BARACUDA_D Line line_of(const float (&x)[N], const W& weight, float top, float first, int steps) {
  float low = x[0], high = x[0], sum_w = 0.0f, sum_x = 0.0f;
#pragma unroll
  for (int j = 0; j < N; ++j) {
    const float w = weight(x[j]);
    low = fminf(low, x[j]), high = fmaxf(high, x[j]), sum_w += w, sum_x += w * x[j];
  }
  low = fminf(low, 0.0f);
  const bool none = high == low;
  // Codes are those of inverse scale `by` from `from` on.
  const auto error = [&](float by, float from, float scale, float least) {
    float sum = 0.0f;
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const float off = scale * nearest(by * (x[j] - from), 0.0f, top) + least - x[j];
      sum += weight(x[j]) * (SIZES ? fabsf(off) : off * off);
    }
    return sum;
  };
  float by = top / (high - low), scale = 1.0f / by, best = error(by, low, scale, low);
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    by = (first + 0.1f * static_cast<float>(step) + top) / (high - low);
    float sum_l = 0.0f, sum_l2 = 0.0f, sum_xl = 0.0f;
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const float code = nearest(by * (x[j] - low), 0.0f, top), weighted = weight(x[j]) * code;
      sum_l += weighted, sum_l2 += weighted * code, sum_xl += weighted * x[j];
    }
    const float det = sum_w * sum_l2 - sum_l * sum_l;
    float own = (sum_w * sum_xl - sum_x * sum_l) / det, least = (sum_l2 * sum_x - sum_l * sum_xl) / det;
    if (least > 0.0f) own = sum_xl / sum_l2, least = 0.0f;
    const float off = error(by, low, own, least);
    if (det > 0.0f && off < best) best = off, scale = own, low = least;
  }
  return {none ? 0.0f : scale, low};
}

// The scale of x ≈ scale · level, by weights x²; inverse scales are `first`, then tries 0, 1, …, over the farthest.
template <int N, class L, class I>
BARACUDA_D float scale_of(const float (&x)[N], const L& level, float first, int tries, const I& inverse) {
  const float far = first_farthest(x);
  float sum_x, sum_q;
  const auto take = [&](float by) {
    sum_x = sum_q = 0.0f;
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const float q = level(by * x[j]), weight = x[j] * x[j];
      sum_x += weight * x[j] * q, sum_q += weight * q * q;
    }
  };
  take(first / far);
  float scale = ratio(sum_x, sum_q), best = scale * sum_x;
#pragma unroll 1
  for (int i = 0; i < tries; ++i) {
    take(inverse(i) / far);
    if (sum_q > 0.0f && sum_x * sum_x > best * sum_q) scale = ratio(sum_x, sum_q), best = scale * sum_x;
  }
  return fabsf(far) < 1e-15f ? 0.0f : scale;
}

// The scale of x ≈ scale · code, codes -4 to 3: five times each code in turn may become that of the others' scale.
BARACUDA_D float scale_by_turns(const Values& x) {
  const float far = first_farthest(x), by = -4.0f / far;
  float code[each], sum_x = 0.0f, sum_q = 0.0f;
#pragma unroll
  for (int j = 0; j < each; ++j) {
    const float weight = x[j] * x[j];
    code[j] = nearest(by * x[j], -4.0f, 3.0f), sum_x += weight * x[j] * code[j], sum_q += weight * code[j] * code[j];
  }
#pragma unroll 1
  for (int turn = 0; turn < 5; ++turn) {
#pragma unroll
    for (int j = 0; j < each; ++j) {
      const float weight = x[j] * x[j];
      const float rest_x = sum_x - weight * x[j] * code[j], rest_q = sum_q - weight * code[j] * code[j];
      const float made = nearest(x[j] * rest_q / rest_x, -4.0f, 3.0f);
      const float next_x = rest_x + weight * x[j] * made, next_q = rest_q + weight * made * made;
      if (rest_x > 0.0f && made != code[j] && next_q > 0.0f && next_x * next_x * sum_q > sum_x * sum_x * next_q) {
        code[j] = made, sum_x = next_x, sum_q = next_q;
      }
    }
  }
  return fabsf(far) < 1e-15f ? 0.0f : ratio(sum_x, sum_q);
}

BARACUDA_D float held_half(float x) { return widen(cast<f16>(known(x))); }
BARACUDA_D u32 whole_of(float x) { return static_cast<u32>(static_cast<int>(x)); }

// The codes of a block in shared memory, which its lanes find there when all have put theirs.
BARACUDA_D const u8* meet(int own, const u32 (&code)[each]) {
  alignas(16) __shared__ u8 codes[256 / super_lanes][256];
  u8* const block = codes[threadIdx.x / super_lanes];
#pragma unroll
  for (int j = 0; j < each; ++j) block[own * each + j] = static_cast<u8>(code[j]);
  __syncwarp();
  return block;
}

// Codes (x + more) / d from 0 on, which stand for `low` and more.
BARACUDA_D const u8* meet_quotients(const Values& x, int own, float more, float d, float low, float high) {
  u32 code[each];
#pragma unroll
  for (int j = 0; j < each; ++j) code[j] = d == 0.0f ? 0u : whole_of(nearest((x[j] + more) / d, low, high) - low);
  return meet(own, code);
}

// BITS of every code from `shift` on; a byte has those at one place of 8 / BITS neighbouring runs of 32.
template <int BITS> BARACUDA_D void put_runs(u8* to, const u8* codes, int own, int shift = 0) {
  constexpr int runs = 8 / BITS, mine = 2 * BITS;
#pragma unroll
  for (int i = own * mine; i < (own + 1) * mine; ++i) {
    u32 byte = 0;
#pragma unroll
    for (int r = 0; r < runs; ++r) {
      byte |= (codes[(i / 32 * runs + r) * 32 + i % 32] >> shift & ((1u << BITS) - 1)) << (BITS * r);
    }
    to[i] = static_cast<u8>(byte);
  }
}
// A byte has a code of 4 bits and, above it, the one APART behind: of every 2 · APART codes the first half is below.
template <int APART> BARACUDA_D void put_pairs(u8* to, const u8* codes, int own) {
#pragma unroll
  for (int i = own * 8; i < own * 8 + 8; ++i) {
    const u8* const low = codes + i / APART * 2 * APART + i % APART;
    to[i] = static_cast<u8>((low[0] & 15u) | (low[APART] & 15u) << 4);
  }
}

// Two upper bits of scales `first`, first + step, … of the block's groups, whose lanes are LANES apart.
template <int LANES> BARACUDA_D u32 upper_pairs(u32 six, int first, int step) {
  u32 byte = 0;
#pragma unroll
  for (int r = 0; r < 4; ++r) byte |= of_lane(six, (first + r * step) * LANES) >> 4 << (2 * r);
  return byte;
}

// Scales and minima of lines as codes 0 to LEVELS, for d and m which make the largest of the block LEVELS.
template <int LEVELS> struct Lines {
  float d, m;
  u32 s, t;
  BARACUDA_D explicit Lines(Line line) {
    const auto coded = [](float found, float& unit) {
      const float most = most_of_lanes(found), by = most > 0.0f ? LEVELS / most : 0.0f;
      unit = most / LEVELS;
      return whole_of(nearest(by * found, 0.0f, LEVELS));
    };
    s = coded(line.scale, d), t = coded(-line.least, m);
  }
  BARACUDA_D const u8* codes(const Values& x, int own, float top) const {
    const float scale = held_half(d) * small_whole(s), more = held_half(m) * small_whole(t);
    return meet_quotients(x, own, more, scale, 0.0f, top);
  }
};

// Scales as codes `low` and more of d, which makes the farthest of the block `low`.
struct SignedScales {
  float d, code;
  BARACUDA_D SignedScales(float scale, float low, float high) {
    const float far = farthest_of_lanes(scale), by = far == 0.0f ? 0.0f : low / far;
    d = reciprocal(by), code = nearest(by * scale, low, high);
  }
};

}  // namespace gguf

// Groups of 16, weights |x|.
struct Q2_KEncoder {
  static constexpr int values = 256, bytes = 84, apart = 1;
  static BARACUDA_D void encode(gguf::Values& x, int own, u8* block) {
    using namespace gguf;
    float group[16];
    group_of(x, own, group);
    const Lines<15> lines(line_of<true>(group, [](float one) { return fabsf(one); }, 3.0f, -0.5f, 16));
    put_runs<2>(block + 16, lines.codes(x, own, 3.0f), own);
    block[own] = static_cast<u8>(lines.s | lines.t << 4);
    if (own == 0) put_half(block + 80, lines.d), put_half(block + 82, lines.m);
  }
};

// Groups of 32, weights |x| and the root of their mean square.
template <int TOP> struct GgufFoursEncoder {
  static constexpr int values = 256, bytes = TOP == 31 ? 176 : 144, apart = 1;
  static BARACUDA_D void encode(gguf::Values& x, int own, u8* block) {
    using namespace gguf;
    float group[32], squares = 0.0f;
    group_of(x, own, group);
#pragma unroll
    for (int j = 0; j < 32; ++j) squares += group[j] * group[j];
    const float mean = sqrtf(squares / 32.0f);
    const auto weight = [&](float one) { return mean + fabsf(one); };
    const Lines<63> lines(line_of<false>(group, weight, TOP, TOP == 31 ? -0.5f : -1.0f, TOP == 31 ? 16 : 21));
    const u8* const codes = lines.codes(x, own, TOP);
    if constexpr (TOP == 31) put_runs<1>(block + 16, codes, own, 4);
    put_runs<4>(block + (TOP == 31 ? 48 : 16), codes, own);
    const int i = own % 4 * 2;
    const u32 s = of_lane(lines.s, i), t = of_lane(lines.t, i), s4 = of_lane(lines.s, i + 8),
              t4 = of_lane(lines.t, i + 8);
    const u32 six = own < 4 ? s | s4 >> 4 << 6 : own < 8 ? t | t4 >> 4 << 6 : (s4 & 15u) | t4 << 4;
    if (own < 12) block[4 + own] = static_cast<u8>(six);
    if (own == 0) put_half(block, lines.d), put_half(block + 2, lines.m);
  }
};

using Q4_KEncoder = GgufFoursEncoder<15>;
using Q5_KEncoder = GgufFoursEncoder<31>;

// Groups of 16, by turns.
struct Q3_KEncoder {
  static constexpr int values = 256, bytes = 110, apart = 1;
  static BARACUDA_D void encode(gguf::Values& x, int own, u8* block) {
    using namespace gguf;
    float group[16];
    group_of(x, own, group);
    const SignedScales scales(scale_by_turns(group), -32.0f, 31.0f);
    const u8* const codes = meet_quotients(x, own, 0.0f, held_half(scales.d) * scales.code, -4.0f, 3.0f);
    put_runs<1>(block, codes, own, 2), put_runs<2>(block + 32, codes, own);
    const u32 six = scales.d == 0.0f ? 0u : whole_of(scales.code + 32.0f);
    const u32 low = (six & 15u) | of_lane(six, (own + 8) % super_lanes) << 4, high = upper_pairs<1>(six, own % 4, 4);
    if (own < 12) block[96 + own] = static_cast<u8>(own < 8 ? low : high);
    if (own == 0) put_half(block + 108, scales.d);
  }
};

// Groups of 16; the tries are 32 and within 0.9 of it.
struct Q6_KEncoder {
  static constexpr int values = 256, bytes = 210, apart = 1;
  static BARACUDA_D void encode(gguf::Values& x, int own, u8* block) {
    using namespace gguf;
    float group[16];
    group_of(x, own, group);
    const auto level = [](float y) { return nearest(y, -32.0f, 31.0f); };
    const auto inverse = [](int i) { return -(32.0f + 0.1f * static_cast<float>(i < 9 ? i - 9 : i - 8)); };
    const SignedScales scales(scale_of(group, level, -32.0f, 18, inverse), -128.0f, 127.0f);
    const u8* const codes = meet_quotients(x, own, 0.0f, held_half(scales.d) * scales.code, -32.0f, 31.0f);
    put_pairs<64>(block, codes, own), put_runs<2>(block + 128, codes, own, 4);
    block[192 + own] = static_cast<u8>(whole_of(scales.code));
    if (own == 0) put_half(block + 208, scales.d);
  }
};

// Groups of 32 with the codes of IQ4_NL's table; the tries are 127 and within 7 of it.
struct Iq4XsEncoder {
  static constexpr int values = 256, bytes = 136, apart = 1;
  static BARACUDA_D u32 code_of(float y) {
    const float within = fminf(fmaxf(gguf::known(y), -128.0f), 127.0f);
    const gguf::Iq4Part part = gguf::iq4_table.part[static_cast<int>((within + 128.0f) * 0.125f)];
    return part.code + (within >= part.from ? 1u : 0u);
  }
  static BARACUDA_D void encode(gguf::Values& x, int own, u8* block) {
    using namespace gguf;
    float group[32];
    group_of(x, own, group);
    const auto level = [](float y) { return iq4_value(code_of(y)); };
    const auto inverse = [](int i) { return static_cast<float>(i - 134); };
    const float scale = scale_of(group, level, -127.0f, 15, inverse);
    const float d = farthest_of_lanes(scale) / -32.0f, code = nearest(reciprocal(d) * scale, -32.0f, 31.0f);
    const float by = reciprocal(d * code);
    u32 at[each];
#pragma unroll
    for (int j = 0; j < each; ++j) at[j] = code_of(by * x[j]);
    put_pairs<16>(block + 8, meet(own, at), own);
    const u32 six = whole_of(code + 32.0f);
    const u32 low = (of_lane(six, own % 4 * 4) & 15u) | of_lane(six, own % 4 * 4 + 2) << 4;
    const u32 high = upper_pairs<2>(six, own % 2 * 4, 1);
    if (own < 4) block[4 + own] = static_cast<u8>(low);
    if (own < 2) block[2 + own] = static_cast<u8>(high);
    if (own == 0) put_half(block, d);
  }
};

namespace gguf {

// Codes 0 to 2 of a block, for d, its largest size.
struct Ternary {
  float d;
  const u8* codes;
  BARACUDA_D Ternary(Values& x, int own) {
    float most = 0.0f;
#pragma unroll
    for (int j = 0; j < each; ++j) x[j] = known(x[j]), most = fmaxf(most, fabsf(x[j]));
    d = among_lanes(most, super_lanes, [](float a, float b) { return fmaxf(a, b); });
    const float by = reciprocal(d);
    u32 code[each];
#pragma unroll
    for (int j = 0; j < each; ++j) {
      code[j] = whole_of(fminf(fmaxf(away_from_zero(known(x[j] * by)), -1.0f), 1.0f) + 1.0f);
    }
    codes = meet(own, code);
  }
};

}  // namespace gguf

// Five digits of base 3 in a byte, the first highest, as a fraction of 256 that is rounded up; the last four have four.
struct Tq1Encoder {
  static constexpr int values = 256, bytes = 54, apart = 1;
  static BARACUDA_D void encode(gguf::Values& x, int own, u8* block) {
    const gguf::Ternary found(x, own);
#pragma unroll
    for (int i = own; i < 52; i += gguf::super_lanes) {
      const int width = i < 32 ? 32 : i < 48 ? 16 : 4;
      const u8* const first = found.codes + (i < 32 ? i : i < 48 ? i + 128 : i + 192);
      u32 sum = 0;
#pragma unroll
      for (int t = 0; t < 5; ++t) sum = 3 * sum + (width == 4 && t == 4 ? 0u : first[t * width]);
      block[i] = static_cast<u8>((sum * 256 + 242) / 243);
    }
    if (own == 0) gguf::put_half(block + 52, found.d);
  }
};

struct Tq2Encoder {
  static constexpr int values = 256, bytes = 66, apart = 1;
  static BARACUDA_D void encode(gguf::Values& x, int own, u8* block) {
    const gguf::Ternary found(x, own);
    gguf::put_runs<2>(block, found.codes, own);
    if (own == 0) gguf::put_half(block + 64, found.d);
  }
};

}  // namespace baracuda
