// block_quantize   a matrix in a low-bit format: the scales of groups, and codes.
//
// A group is of `lanes` neighbouring lanes, a power of two; each has every lanes-th of the group's chunks of 8 numbers.
// A group of more chunks than lanes is read twice. The least and the largest number are the same in any order.
#include "quantize/encode.cuh"
#include <baracuda/reduce.cuh>

namespace baracuda {

// The number at `at` of scales or zero points of an element by its code; x is a number of that element.
BARACUDA_D void store_number(void* to, int code, i64 at, float x) {
  switch (code) {
    case code_f32: static_cast<float*>(to)[at] = x; break;
    case code_f16: static_cast<f16*>(to)[at] = cast<f16>(x); break;
    case code_bf16: static_cast<bf16*>(to)[at] = cast<bf16>(x); break;
    case code_e8m0: static_cast<u8*>(to)[at] = e8m0_code(x, false); break;
    case code_e4m3: static_cast<u8*>(to)[at] = coded<code_e4m3>(x, true); break;
    default: static_cast<u8*>(to)[at] = static_cast<u8>(x);
  }
}

// Eight codes as BITS bytes from `to` on: in one access of a power of two where rows allow it.
template <int BITS> BARACUDA_D void store_codes(u8* to, const u32 (&code)[format_part], bool whole) {
  u64 all = 0;
#pragma unroll
  for (int j = 0; j < format_part; ++j) all |= static_cast<u64>(code[j]) << (BITS * j);
  if (is_pow2(BITS) && whole) {
    if constexpr (BITS == 8) *reinterpret_cast<uint2*>(to) = {static_cast<u32>(all), static_cast<u32>(all >> 32)};
    else if constexpr (BITS == 4) *reinterpret_cast<u32*>(to) = static_cast<u32>(all);
    else if constexpr (BITS == 2) *reinterpret_cast<u16*>(to) = static_cast<u16>(all);
  } else {
#pragma unroll
    for (int i = 0; i < BITS; ++i) to[i] = static_cast<u8>(all >> (8 * i));
  }
}

template <class E, class T> BARACUDA_D void block_quantize(const BlockQuantizeParams& p) {
  const int lanes = p.lanes, own = lane_id() % lanes;
  const i64 number = (i64(blockIdx.x) * blockDim.x + threadIdx.x) / lanes;
  const bool there = number < p.rows * p.groups;
  const i64 row = there ? number / p.groups : 0, group = there ? number - row * p.groups : 0;
  const int chunks = p.group / format_part;
  const T* const x = static_cast<const T*>(p.x) + row * p.x_step + group * p.group;
  EncodedGroup g{0.0f, 0.0f, p.scale_code, static_cast<float>(p.scale())};
  float held[format_part];
  for (int c = own; c < chunks; c += lanes) {
    load_chunk(x + c * format_part, p.wide, held);
#pragma unroll
    for (int j = 0; j < format_part; ++j) g.least = fminf(g.least, held[j]), g.most = fmaxf(g.most, held[j]);
  }
  g.least = among_lanes(g.least, lanes, [](float a, float b) { return fminf(a, b); });
  g.most = among_lanes(g.most, lanes, [](float a, float b) { return fmaxf(a, b); });
  if (!there) return;
  const E encoder(g);
  const i64 batch = row / p.n, of = row - batch * p.n;
  if (own == 0) {
    const auto at = [&](const i64* step) { return batch * step[0] + of * step[1] + group * step[2]; };
    if (p.scales != nullptr) store_number(p.scales, p.scale_code, at(p.scale_steps), encoder.held);
    if (p.zeros != nullptr) store_number(p.zeros, p.zero_code, at(p.zero_steps), encoder.zero);
  }
  u8* const codes = static_cast<u8*>(p.codes) + row * p.code_steps[1] + group * p.group / format_part * E::bits;
  for (int c = own; c < chunks; c += lanes) {
    if (chunks > lanes) load_chunk(x + c * format_part, p.wide, held);
    u32 code[format_part];
#pragma unroll
    for (int j = 0; j < format_part; ++j) code[E::bits == 4 && E::upper_first ? j ^ 1 : j] = encoder.code(held[j]);
    store_codes<E::bits>(codes + c * E::bits, code, p.whole);
  }
}

}  // namespace baracuda
