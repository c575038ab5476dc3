#pragma once
// gguf       encoders of GGML's blocks, by its reference quantisers (quantize_row_*_ref of ggml-quants.c).
//
// An encoder is a struct with
//   static constexpr int values, bytes;   // of a block
//   static void encode(const float (&x)[8], int own, u8* block);
// which values / 8 neighbouring lanes call together: lane `own` of them has 8 values of a block, none of them NaN, and
// each writes its part of the bytes, which begin at an even address. Operations are in float32, in the order of
// `gguf_encoders.py`; a quotient or product that is NaN counts as 0.
#include "quantize/encode.cuh"
#include "quantize/formats/gguf.cuh"
#include <baracuda/reduce.cuh>

namespace baracuda {

BARACUDA_D float known(float x) { return x != x ? 0.0f : x; }
BARACUDA_D float reciprocal(float x) { return x == 0.0f ? 0.0f : 1.0f / x; }

BARACUDA_D void put_u16(u8* to, u32 x) { *reinterpret_cast<u16*>(to) = static_cast<u16>(x); }
BARACUDA_D void put_half(u8* to, float x) { put_u16(to, __half_as_ushort(cast<f16>(known(x)))); }
BARACUDA_D void put_words(u8* to, u32 low, u32 high) {
  put_u16(to, low), put_u16(to + 2, low >> 16), put_u16(to + 4, high), put_u16(to + 6, high >> 16);
}

// Four codes as the bytes of a word.
BARACUDA_D u32 four_bytes(const u32* code) { return code[0] | code[1] << 8 | code[2] << 16 | code[3] << 24; }

// The first of all numbers that the lanes have that none is better than, and better than `from`; else `from`.
template <int LANES, class Better>
BARACUDA_D float first_best(const float (&x)[format_part], float from, const Better& better) {
  float best = from;
#pragma unroll
  for (int j = 0; j < format_part; ++j) best = better(x[j], best) ? x[j] : best;
#pragma unroll
  for (int mask = 1; mask < LANES; mask *= 2) {
    const float other = shuffle_xor(best, mask);
    const bool upper = lane_id() & mask;
    const float first = upper ? other : best, second = upper ? best : other;
    best = better(second, first) ? second : first;
  }
  return best;
}

// The number of the largest size, +0 where all are 0.
template <int LANES> BARACUDA_D float farthest(const float (&x)[format_part]) {
  return first_best<LANES>(x, 0.0f, [](float a, float b) { return fabsf(a) > fabsf(b); });
}

// The lower halves of 16 bytes are the codes of the first two of four lanes, the upper ones those of the others.
BARACUDA_D void put_halves(u8* to, const u32 (&code)[format_part], int own) {
  const u32 low = four_bytes(code) & 0x0f0f0f0fu, high = four_bytes(code + 4) & 0x0f0f0f0fu;
  const u32 upper_low = shuffle_xor(low, 2), upper_high = shuffle_xor(high, 2);
  if (own < 2) put_words(to + 8 * own, low | upper_low << 4, high | upper_high << 4);
}

// Blocks of 32 codes of 4 bits or, FIFTH, of 5: around 0, or MIN from the least number on.
template <int BYTES, bool MIN, bool FIFTH> struct GgufHalvesEncoder {
  static constexpr int values = 32, bytes = BYTES;
  static BARACUDA_D void encode(const float (&x)[format_part], int own, u8* block) {
    constexpr int middle = FIFTH ? 16 : 8, fifth = MIN ? 4 : 2, codes = fifth + (FIFTH ? 4 : 0);
    constexpr float top = 2 * middle - 1;
    float least = 0.0f, d;
    if constexpr (MIN) {
      const float largest = numeric<float>::max();
      least = first_best<4>(x, largest, [](float a, float b) { return a < b; });
      d = (first_best<4>(x, -largest, [](float a, float b) { return a > b; }) - least) / top;
    } else {
      d = farthest<4>(x) / static_cast<float>(-middle);
    }
    const float by = reciprocal(d);
    u32 code[format_part], fifths = 0;
#pragma unroll
    for (int j = 0; j < format_part; ++j) {
      const float y = MIN ? known((x[j] - least) * by) + 0.5f : known(x[j] * by) + (middle + 0.5f);
      code[j] = static_cast<u32>(fminf(fmaxf(y, 0.0f), top));
      fifths |= code[j] >> 4 << j;
    }
    if (own == 0) {
      put_half(block, d);
      if constexpr (MIN) put_half(block + 2, least);
    }
    if constexpr (FIFTH) block[fifth + own] = static_cast<u8>(fifths);
    put_halves(block + codes, code, own);
  }
};

using Q4_0Encoder = GgufHalvesEncoder<18, false, false>;
using Q4_1Encoder = GgufHalvesEncoder<20, true, false>;
using Q5_0Encoder = GgufHalvesEncoder<22, false, true>;
using Q5_1Encoder = GgufHalvesEncoder<24, true, true>;

// To the nearest whole number, ties away from 0, within 127 of it.
BARACUDA_D float away_from_zero(float y) {
  const float cut = truncf(y), on = fabsf(y - cut) >= 0.5f ? copysignf(1.0f, y) : 0.0f;
  return fminf(fmaxf(cut + on, -127.0f), 127.0f);
}

BARACUDA_D u32 byte_of(int x) { return static_cast<u32>(x) & 255u; }

// Blocks of 32 int8; of 36 bytes with the sum of their numbers.
template <int BYTES> struct GgufBytesEncoder {
  static constexpr int values = 32, bytes = BYTES;
  static BARACUDA_D void encode(const float (&x)[format_part], int own, u8* block) {
    float most = 0.0f;
#pragma unroll
    for (int j = 0; j < format_part; ++j) most = fmaxf(most, fabsf(x[j]));
    most = among_lanes(most, 4, [](float a, float b) { return fmaxf(a, b); });
    const float d = most / 127.0f, by = reciprocal(d);
    u32 code[format_part];
    int sum = 0;
#pragma unroll
    for (int j = 0; j < format_part; ++j) {
      const int whole = static_cast<int>(away_from_zero(known(x[j] * by)));
      sum += whole, code[j] = byte_of(whole);
    }
    if constexpr (BYTES == 36) sum += shuffle_xor(sum, 1), sum += shuffle_xor(sum, 2);
    if (own == 0) {
      put_half(block, d);
      if constexpr (BYTES == 36) put_half(block + 2, static_cast<float>(sum) * d);
    }
    put_words(block + BYTES - 32 + 8 * own, four_bytes(code), four_bytes(code + 4));
  }
};

using Q8_0Encoder = GgufBytesEncoder<34>;
using Q8_1Encoder = GgufBytesEncoder<36>;

// Blocks of 256 int8 with float32 d and the sums of 16 codes each.
struct Q8_KEncoder {
  static constexpr int values = 256, bytes = 292;
  static BARACUDA_D void encode(const float (&x)[format_part], int own, u8* block) {
    const float far = farthest<warp_size>(x), scale = far == 0.0f ? 0.0f : -127.0f / far;
    u32 code[format_part];
    int sum = 0;
#pragma unroll
    for (int j = 0; j < format_part; ++j) {
      const int whole = static_cast<int>(fminf(fmaxf(math::rint(known(x[j] * scale)), -127.0f), 127.0f));
      sum += whole, code[j] = byte_of(whole);
    }
    sum += shuffle_xor(sum, 1);
    if (own == 0) {
      const u32 d = __float_as_uint(far == 0.0f ? 0.0f : 1.0f / scale);
      put_u16(block, d), put_u16(block + 2, d >> 16);
    }
    put_words(block + 4 + 8 * own, four_bytes(code), four_bytes(code + 4));
    if (own % 2 == 0) put_u16(block + 260 + own, static_cast<u32>(sum));
  }
};

// Blocks of 32 codes of a table, for the scale that makes the farthest number -127; d is the least-squares scale of what
// they stand for, numbers weighing as their squares. Both sums are chains in the order of the numbers: a lane goes on
// where the one before it ended.
struct Iq4NlEncoder {
  static constexpr int values = 32, bytes = 18;
  static BARACUDA_D void encode(const float (&x)[format_part], int own, u8* block) {
    const float far = farthest<4>(x), by = reciprocal(far / -127.0f);
    const bool none = fabsf(far) < 1e-15f;
    u32 code[format_part];
    float by_x[format_part], by_q[format_part];
#pragma unroll
    for (int j = 0; j < format_part; ++j) {
      const float y = known(x[j] * by);
      u32 at = 0;
#pragma unroll
      for (u32 i = 1; i < 16; ++i) at += y >= iq4_value(i) ? 1u : 0u;
      code[j] = none ? 0u : at == 15u || y - iq4_value(at) < iq4_value(at + 1) - y ? at : at + 1u;
      const float q = iq4_value(code[j]), weighted = x[j] * x[j] * q;
      by_x[j] = weighted * x[j], by_q[j] = weighted * q;
    }
    float sum_x = 0.0f, sum_q = 0.0f;
#pragma unroll
    for (int lane = 0; lane < 4; ++lane) {
      float next_x = sum_x, next_q = sum_q;
#pragma unroll
      for (int j = 0; j < format_part; ++j) next_x += by_x[j], next_q += by_q[j];
      sum_x = shuffle<4>(next_x, lane), sum_q = shuffle<4>(next_q, lane);
    }
    if (own == 0) put_half(block, none ? 0.0f : sum_x / sum_q);
    put_halves(block + 2, code, own);
  }
};

}  // namespace baracuda
