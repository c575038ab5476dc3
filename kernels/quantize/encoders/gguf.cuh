#pragma once
// gguf       encoders of GGML's blocks, by its reference quantisers (quantize_row_*_ref of ggml-quants.c).
//
// An encoder is a struct with
//   static constexpr int values, bytes;   // of a block
//   static constexpr int apart;           // chunks of 8 values from the first that a lane has to its second
//   static void encode(gguf::Values& x, int own, u8* block);
// which values / 16 neighbouring lanes call together, in whole warps: lane `own` of them has two chunks of a block (`own` and
// own + apart, or two neighbours), and each writes its part of the bytes, which begin at an even address. Operations are in
// float32, in the order of `gguf_encoders.py`; a NaN, and a quotient or product that is NaN, counts as 0.
//
// Most blocks have a scale far from the ends of the range and quotients within the codes: they need neither tests nor
// clamps. A whole number is then rounded by adding a power of two whose last bit is 1. Others go round a loop.
#include "quantize/encode.cuh"
#include "quantize/formats/gguf.cuh"
#include <baracuda/reduce.cuh>

namespace baracuda {

namespace gguf {

constexpr int each = 2 * format_part;
using Values = float[each];

BARACUDA_D float known(float x) { return x != x ? 0.0f : x; }
BARACUDA_D float reciprocal(float x) { return x == 0.0f ? 0.0f : 1.0f / x; }
// Whether products by `by`, the reciprocal of d or 0, are those of a number near 1 / d, and of numbers that are finite.
BARACUDA_D bool sound(float d) { return d == 0.0f || (fabsf(d) > 0x1p-90f && fabsf(d) < 0x1p90f); }

BARACUDA_D void put_u16(u8* to, u32 x) { *reinterpret_cast<u16*>(to) = static_cast<u16>(x); }
BARACUDA_D void put_half(u8* to, float x) { put_u16(to, __half_as_ushort(cast<f16>(known(x)))); }
// WORDS: blocks are of whole words.
template <bool WORDS> BARACUDA_D void put_word(u8* to, u32 x) {
  if constexpr (WORDS) *reinterpret_cast<u32*>(to) = x;
  else put_u16(to, x), put_u16(to + 2, x >> 16);
}

// The lowest bytes of four codes.
BARACUDA_D u32 four_bytes(const u32* code) {
  return __byte_perm(__byte_perm(code[0], code[1], 0x0040), __byte_perm(code[2], code[3], 0x0040), 0x5410);
}
template <bool WORDS> BARACUDA_D void put_bytes(u8* to, const u32* code) {
  put_word<WORDS>(to, four_bytes(code)), put_word<WORDS>(to + 4, four_bytes(code + 4));
}
// Byte j has code j in its lower half and code j + 8 in its upper half; above a code are the bits of a whole number.
template <bool WORDS> BARACUDA_D void put_halves(u8* to, const u32 (&code)[each]) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    u32 word = 0;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const u32 low = code[4 * i + j], high = code[4 * i + j + format_part];
      word += (low << 8 * j) + (high << (8 * j + 4)) - (whole_bits << 8 * j) - (whole_bits << (8 * j + 4));
    }
    put_word<WORDS>(to + 4 * i, word);
  }
}

// The codes of a lane's numbers: `near` of each where it serves for the warp, else `exact`.
template <class Near, class Exact>
BARACUDA_D void codes_of(Values& x, bool serves, const Near& near, const Exact& exact, u32 (&code)[each]) {
  if (__all_sync(full_warp, serves)) {
#pragma unroll
    for (int j = 0; j < each; ++j) code[j] = near(x[j]);
  } else {
#pragma unroll 1
    for (int n = 0; n < each; ++n) {  // rare, and so one piece of code, through which the numbers go round
      const u32 found = exact(x[0]);
#pragma unroll
      for (int j = 0; j < each - 1; ++j) x[j] = x[j + 1], code[j] = code[j + 1];
      code[each - 1] = found;
    }
  }
}

// What a block's numbers lie between; NaN among them become 0.
struct Ends {
  float least, most;
};
template <int LANES> BARACUDA_D Ends ends_of(Values& x, float from_least, float from_most) {
  Ends e{from_least, from_most};
  const auto take = [&] {
#pragma unroll
    for (int j = 0; j < each; ++j) e.least = fminf(e.least, x[j]), e.most = math::maximum(e.most, x[j]);
    e.least = among_lanes(e.least, LANES, [](float a, float b) { return fminf(a, b); });
    e.most = among_lanes(e.most, LANES, [](float a, float b) { return math::maximum(a, b); });
  };
  take();
  if (__any_sync(full_warp, e.most != e.most)) {
#pragma unroll
    for (int j = 0; j < each; ++j) x[j] = known(x[j]);
    e = {from_least, from_most};
    take();
  }
  return e;
}

// Whether the first number of size `size` in a block is negative.
template <class E> BARACUDA_D bool first_is_negative(const Values& x, int own, float size) {
  int first = 2 * E::values;
#pragma unroll
  for (int j = each - 1; j >= 0; --j) {
    const int chunk = E::apart == 1 ? 2 * own + j / format_part : own + j / format_part * E::apart;
    if (fabsf(x[j]) == size) first = 2 * (chunk * format_part + j % format_part) + (signbit(x[j]) ? 1 : 0);
  }
#pragma unroll
  for (int mask = 1; mask < E::values / each; mask *= 2) first = min(first, shuffle_xor(first, mask));
  return first & 1;
}

// The first number of the largest size in a block, +0 where all are 0.
template <class E> BARACUDA_D float farthest(Values& x, int own) {
  const Ends e = ends_of<E::values / each>(x, 0.0f, 0.0f);
  float far = e.most >= -e.least ? e.most : e.least;
  if (__any_sync(full_warp, e.most == -e.least)) {
    const bool negative = first_is_negative<E>(x, own, e.most);
    if (e.most == -e.least && negative && e.most != 0.0f) far = e.least;
  }
  return far;
}

}  // namespace gguf

// Blocks of 32 codes of 4 bits or, FIFTH, of 5: around 0, or MIN from the least number on.
template <int BYTES, bool MIN, bool FIFTH> struct GgufHalvesEncoder {
  static constexpr int values = 32, bytes = BYTES, apart = 2;
  static BARACUDA_D void encode(gguf::Values& x, int own, u8* block) {
    using namespace gguf;
    constexpr int middle = FIFTH ? 16 : 8, fifth = MIN ? 4 : 2, codes = fifth + (FIFTH ? 4 : 0);
    constexpr float top = 2 * middle - 1;
    float least = 0.0f, d;
    if constexpr (MIN) {
      const float largest = numeric<float>::max();
      const Ends e = ends_of<2>(x, largest, -largest);
      least = e.least;
      if (__any_sync(full_warp, least == 0.0f)) {  // of -0 and 0 the first
        const bool negative = first_is_negative<GgufHalvesEncoder>(x, own, 0.0f);
        if (least == 0.0f) least = negative ? -0.0f : 0.0f;
      }
      d = (e.most - least) / top;
    } else {
      d = farthest<GgufHalvesEncoder>(x, own) / static_cast<float>(-middle);
    }
    const float by = reciprocal(d);
    const auto near = [&](float one) {
      const float y = MIN ? (one - least) * by + 0.5f : fminf(one * by + (middle + 0.5f), top);
      return __float_as_uint(__fadd_rz(y, 0x1p23f));
    };
    const auto exact = [&](float one) {
      const float y = MIN ? known((one - least) * by) + 0.5f : known(one * by) + (middle + 0.5f);
      return static_cast<u32>(fminf(fmaxf(y, 0.0f), top)) + whole_bits;
    };
    u32 code[each];
    codes_of(x, sound(d), near, exact, code);
    if (own == 0) {
      put_half(block, d);
      if constexpr (MIN) put_half(block + 2, least);
    }
    if constexpr (FIFTH) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        u32 fifths = 0;
#pragma unroll
        for (int j = 0; j < format_part; ++j) fifths += (code[i * format_part + j] & 16u) << j;
        block[fifth + own + i * apart] = static_cast<u8>(fifths >> 4);
      }
#pragma unroll
      for (int j = 0; j < each; ++j) code[j] = (code[j] & 15u) + whole_bits;
    }
    put_halves<BYTES % 4 == 0>(block + codes + 8 * own, code);
  }
};

using Q4_0Encoder = GgufHalvesEncoder<18, false, false>;
using Q4_1Encoder = GgufHalvesEncoder<20, true, false>;
using Q5_0Encoder = GgufHalvesEncoder<22, false, true>;
using Q5_1Encoder = GgufHalvesEncoder<24, true, true>;

namespace gguf {

// To the nearest whole number, ties away from 0, within 127 of it.
BARACUDA_D float away_from_zero(float y) {
  const float cut = truncf(y), on = fabsf(y - cut) >= 0.5f ? copysignf(1.0f, y) : 0.0f;
  return fminf(fmaxf(cut + on, -127.0f), 127.0f);
}

// A whole number between -2^22 and 2^22 in two's complement, in the last bits of 1.5 · 2^23 and more.
constexpr float signed_from = 0x1.8p23f;
constexpr u32 signed_bits = 0x4b400000u;
BARACUDA_D u32 signed_whole(float x) { return __float_as_uint(x + signed_from); }

// The sum of N such numbers.
template <int N> BARACUDA_D int sum_of(const u32* code) {
  u32 sum = 0;
#pragma unroll
  for (int j = 0; j < N; ++j) sum += code[j];
  return static_cast<int>(sum - static_cast<u32>(N) * signed_bits);
}

}  // namespace gguf

// Blocks of 32 int8; of 36 bytes with the sum of their numbers.
template <int BYTES> struct GgufBytesEncoder {
  static constexpr int values = 32, bytes = BYTES, apart = 2;
  static BARACUDA_D void encode(gguf::Values& x, int own, u8* block) {
    using namespace gguf;
    const auto largest = [&] {
      float most = 0.0f;
#pragma unroll
      for (int j = 0; j < each; ++j) most = math::maximum(most, fabsf(x[j]));
      return among_lanes(most, 2, [](float a, float b) { return math::maximum(a, b); });
    };
    float most = largest();
    if (__any_sync(full_warp, most != most)) {
#pragma unroll
      for (int j = 0; j < each; ++j) x[j] = known(x[j]);
      most = largest();
    }
    const float d = most / 127.0f, by = reciprocal(d);
    // Sums are cut off, so that what is below a half stays below 1.
    const auto near = [&](float one) {
      const float y = one * by, size = __fadd_rz(__fadd_rz(fabsf(y), 0.5f), 0x1p23f) - 0x1p23f;
      return signed_whole(copysignf(size, y));
    };
    const auto exact = [&](float one) { return signed_whole(away_from_zero(known(one * by))); };
    u32 code[each];
    codes_of(x, sound(d), near, exact, code);
    int sum = 0;
    if constexpr (BYTES == 36) sum = sum_of<each>(code), sum += shuffle_xor(sum, 1);
    if (own == 0) {
      put_half(block, d);
      if constexpr (BYTES == 36) put_half(block + 2, static_cast<float>(sum) * d);
    }
    u8* const to = block + BYTES - 32 + 8 * own;
    put_bytes<BYTES % 4 == 0>(to, code), put_bytes<BYTES % 4 == 0>(to + 8 * apart, code + format_part);
  }
};

using Q8_0Encoder = GgufBytesEncoder<34>;
using Q8_1Encoder = GgufBytesEncoder<36>;

// Blocks of 256 int8 with float32 d and the sums of 16 codes each, which are those of a lane.
struct Q8_KEncoder {
  static constexpr int values = 256, bytes = 292, apart = 1;
  static BARACUDA_D void encode(gguf::Values& x, int own, u8* block) {
    using namespace gguf;
    const float far = farthest<Q8_KEncoder>(x, own), scale = far == 0.0f ? 0.0f : -127.0f / far;
    const auto near = [&](float one) { return signed_whole(one * scale); };
    const auto exact = [&](float one) {
      return signed_whole(fminf(fmaxf(math::rint(known(one * scale)), -127.0f), 127.0f));
    };
    u32 code[each];
    codes_of(x, sound(far), near, exact, code);
    if (own == 0) put_word<true>(block, __float_as_uint(far == 0.0f ? 0.0f : 1.0f / scale));
    put_bytes<true>(block + 4 + each * own, code), put_bytes<true>(block + 12 + each * own, code + format_part);
    put_u16(block + 260 + 2 * own, static_cast<u32>(sum_of<each>(code)));
  }
};

namespace gguf {

// Where the codes of IQ4_NL change: numbers from the middle of two neighbours on are the upper one's. Of the numbers
// [8 i - 128, 8 i - 120) the code of those below `from`, of which there is one at most, and `from`, or infinity.
struct Iq4Part {
  float from;
  u32 code;
};
struct Iq4Parts {
  Iq4Part part[32];
};
constexpr Iq4Parts iq4_parts() {
  constexpr int twice[15] = {-231, -187, -148, -114, -84, -57, -32, -9, 14, 38, 63, 91, 122, 158, 202};
  Iq4Parts made{};
  for (int i = 0; i < 32; ++i) {
    const int first = 16 * i - 256;
    made.part[i] = {3e38f, 0};
    for (int j = 0; j < 15; ++j) {
      if (twice[j] < first) ++made.part[i].code;
      else if (twice[j] < first + 16) made.part[i].from = 0.5f * static_cast<float>(twice[j]);
    }
  }
  return made;
}
static __device__ constexpr Iq4Parts iq4_table = iq4_parts();

}  // namespace gguf

// Blocks of 32 codes of a table, for the scale that makes the farthest number -127; d is the least-squares scale of what
// they stand for, numbers weighing as their squares. Both sums are chains in the order of the numbers: a lane goes on
// where the other one ended.
struct Iq4NlEncoder {
  static constexpr int values = 32, bytes = 18, apart = 2;
  static BARACUDA_D void encode(gguf::Values& x, int own, u8* block) {
    using namespace gguf;
    const float far = farthest<Iq4NlEncoder>(x, own), by = reciprocal(far / -127.0f);
    const bool none = fabsf(far) < 1e-15f;
    const Iq4Part mine = iq4_table.part[lane_id()];  // lanes ask each other for what they need
    const float named = iq4_value(lane_id() & 15);
    const bool near = __all_sync(full_warp, !none && sound(far));
    u32 code[each];
    float by_x[each], by_q[each];
    const auto exact = [&](float one) {
      const float y = known(one * by);
      u32 at = 0;
#pragma unroll
      for (u32 i = 1; i < 16; ++i) at += y >= iq4_value(i) ? 1u : 0u;
      return none ? 0u : at == 15u || y - iq4_value(at) < iq4_value(at + 1) - y ? at : at + 1u;
    };
    if (near) {
#pragma unroll
      for (int j = 0; j < each; ++j) {
        const float y = x[j] * by;
        const int part = static_cast<int>(__float_as_uint(__fmaf_rz(y, 0.125f, 0x1p23f + 16.0f)) & 31u);
        code[j] = shuffle(mine.code, part) + (y >= shuffle(mine.from, part) ? 1u : 0u);
      }
    } else {
#pragma unroll
      for (int j = 0; j < each; ++j) code[j] = 0;
      float round[each];
#pragma unroll
      for (int j = 0; j < each; ++j) round[j] = x[j];
      codes_of(round, false, exact, exact, code);
    }
#pragma unroll
    for (int j = 0; j < each; ++j) {
      const float q = shuffle(named, static_cast<int>(code[j])), weighted = x[j] * x[j] * q;
      by_x[j] = weighted * x[j], by_q[j] = weighted * q;
      code[j] += whole_bits;
    }
    float sum_x = 0.0f, sum_q = 0.0f;
#pragma unroll
    for (int stage = 0; stage < 4; ++stage) {
      float next_x = sum_x, next_q = sum_q;
#pragma unroll
      for (int j = 0; j < format_part; ++j) {
        const int at = stage / 2 * format_part + j;
        next_x += by_x[at], next_q += by_q[at];
      }
      sum_x = shuffle<2>(next_x, stage % 2), sum_q = shuffle<2>(next_q, stage % 2);
    }
    if (own == 0) put_half(block, none ? 0.0f : sum_x / sum_q);
    put_halves<false>(block + 2 + 8 * own, code);
  }
};

}  // namespace baracuda
