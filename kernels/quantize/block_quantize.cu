// block_quantize   a matrix in a low-bit format: the scales of groups, and codes.
//
// A group is of neighbouring lanes, a power of two; a lane has two neighbouring chunks of 8 numbers, and of groups that are
// longer further ones, which are then read twice. The least and the largest number are the same in any order.
#include "quantize/encode.cuh"
#include <baracuda/chunks.cuh>
#include <baracuda/index.cuh>
#include <baracuda/reduce.cuh>

namespace baracuda {

namespace blocks {

constexpr int chunks = 2, each = chunks * format_part;  // of a lane at once

// N codes, as `near` of the encoder gives them, as a stream of bits from `to` on: in accesses as wide as they go into the
// bytes of N where they lie so.
template <class E, int N> BARACUDA_D void store_codes(u8* to, const u32* code, bool whole) {
  constexpr int bits = E::bits, bytes = N * bits / 8, unit = bytes & -bytes, words = div_up(bytes, 4);
  static_assert(E::added == 0 || 32 % bits == 0, "a code in two words is exact");
  u32 word[words] = {};
#pragma unroll
  for (int j = 0; j < N; ++j) {
    const int at = bits * j / 32, shift = bits * j % 32;
    word[at] += (code[j] << shift) - (E::added << shift);
    if (shift + bits > 32) word[at + 1] += code[j] >> (32 - shift);
  }
  constexpr u32 turned = E::turned * (bits == 8 ? 0x01010101u : 0x11111111u);
#pragma unroll
  for (int i = 0; i < words; ++i) word[i] ^= turned;
  if (whole) {
    using W = Word<unit>;
#pragma unroll
    for (int i = 0; i < bytes / unit; ++i) {
      if constexpr (unit >= 4) reinterpret_cast<W*>(to)[i] = reinterpret_cast<const W*>(word)[i];
      else reinterpret_cast<W*>(to)[i] = static_cast<W>(word[i * unit / 4] >> (8 * (i * unit % 4)));
    }
  } else {
#pragma unroll
    for (int i = 0; i < bytes; ++i) to[i] = static_cast<u8>(word[i / 4] >> (8 * (i % 4)));
  }
}

// What a lane has of a group: the chunks c and c + 1 for c from `first` on, in steps of what all lanes have at once.
template <class E, class T> struct Part {
  const T* x;
  int lanes, first, step, count, at;  // at: c of what is held
  bool wide;
  float held[each];

  template <class P>
  BARACUDA_D Part(const P& p, i64 from)
      : x(static_cast<const T*>(p.x) + from), lanes(1 << p.lane_bits), first((lane_id() & (lanes - 1)) * chunks),
        step(lanes * chunks), count(static_cast<u32>(p.group) / format_part), at(first), wide(p.wide != 0) {}

  BARACUDA_D void load(int c) {
    at = c;
    const T* const from = x + c * format_part;
    Vec<T, format_part> some[chunks] = {};
    if (wide && c + chunks <= count) {  // all on their way before the first is used
#pragma unroll
      for (int i = 0; i < chunks; ++i) some[i] = load_readonly<format_part>(from + i * format_part);
    } else {
#pragma unroll
      for (int i = 0; i < chunks; ++i) {
        const int left = c + i < count ? format_part : 0;
        some[i] = load_strided<T, format_part, Access::readonly>(from + i * format_part, 1, left);
      }
    }
#pragma unroll
    for (int i = 0; i < chunks; ++i) {
      keep_packed(some[i]);
#pragma unroll
      for (int j = 0; j < format_part; ++j) held[i * format_part + j] = cast<float>(some[i][j]);
    }
  }
  // The group's least and largest number; the last chunks stay held. Without KNOWN, the largest is NaN where there is one.
  template <bool KNOWN> BARACUDA_D void measure(EncodedGroup& g) {
    float least = 0.0f, most = 0.0f;
    int c = first;
    do {
      load(c);
#pragma unroll
      for (int j = 0; j < each; ++j) {
        const float number = KNOWN && held[j] != held[j] ? 0.0f : held[j];
        if constexpr (!E::sizes) least = fminf(least, number);
        most = math::maximum(most, E::sizes ? math::abs(number) : number);
      }
      c += step;
    } while (c < count);
    if constexpr (!E::sizes) least = among_lanes(least, lanes, [](float a, float b) { return fminf(a, b); });
    g.least = least, g.most = among_lanes(most, lanes, [](float a, float b) { return math::maximum(a, b); });
  }
  // Of the held numbers; `near`: as the encoder's `near` gives them.
  BARACUDA_D void encode(const E& encoder, bool near, u32 (&code)[each]) {
    constexpr int other = E::upper_first ? 1 : 0;
    if (near) {
#pragma unroll
      for (int j = 0; j < each; ++j) code[j ^ other] = encoder.near(held[j]);
    } else {
#pragma unroll 1
      for (int n = 0; n < each; ++n) {  // rare, and so one piece of code, through which the numbers go round
        const u32 found = (encoder.code(held[0]) ^ E::turned) + E::added;
#pragma unroll
        for (int j = 0; j < each - 1; ++j) held[j] = held[j + 1], code[j ^ other] = code[j + 1 ^ other];
        code[each - 1 ^ other] = found;
      }
    }
  }
  BARACUDA_D void put(u8* codes, int whole, const u32 (&code)[each]) const {
    u8* const to = codes + at * E::bits;
    if (whole == chunks) {
      store_codes<E, each>(to, code, true);
    } else {
      store_codes<E, format_part>(to, code, whole != 0);
      if (at + 1 < count) store_codes<E, format_part>(to + E::bits, code + format_part, whole != 0);
    }
  }
};

}  // namespace blocks

template <class E, class T> BARACUDA_D void block_quantize(const BlockQuantizeParams& p) {
  using namespace blocks;
  i64 number = thread_index() >> p.lane_bits;
  const bool there = number < p.rows * p.groups;
  if (!there) number = 0;
  i64 at = number * static_cast<u32>(p.group), scale_at = number, zero_at = number;
  u8* const codes = static_cast<u8*>(p.codes) + at / format_part * E::bits;
  if (!p.flat) {
    u64 group, of;
    const i64 row = divmod(number, p.groups, group), batch = divmod(row, p.n, of);
    const auto place = [&](const i64* step) {
      return batch * step[0] + static_cast<i64>(of) * step[1] + static_cast<i64>(group) * step[2];
    };
    at = row * p.x_step + static_cast<i64>(group) * p.group;
    scale_at = place(p.scale_steps), zero_at = place(p.zero_steps);
  }
  Part<E, T> part(p, at);
  EncodedGroup g{0.0f, 0.0f, p.scale_code, static_cast<float>(p.scale())};
  part.template measure<false>(g);
  const bool known = !__any_sync(full_warp, g.most != g.most);
  if (!known) part.template measure<true>(g);
  if (!there) return;
  const E encoder(g);
  if (part.first == 0) {
    if (p.scales != nullptr) encoder.store(p.scales, p.scale_code, scale_at);
    if constexpr (!E::sizes) {
      u8* const bytes = p.zero_code == code_u8 ? static_cast<u8*>(p.zeros) : nullptr;
      if (bytes != nullptr) bytes[zero_at] = static_cast<u8>(encoder.zero);
      else if (p.zeros != nullptr) store_float(p.zeros, p.zero_code, zero_at, encoder.zero);
    }
  }
  while (part.at < part.count) {  // from the last chunks back to the first
    u32 code[each];
    part.encode(encoder, known && encoder.serves, code);
    part.put(codes, p.whole, code);
    if (part.at == part.first) break;
    part.load(part.at - part.step);
  }
}

}  // namespace baracuda
