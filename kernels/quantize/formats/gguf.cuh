#pragma once
// gguf       what GGML's blocks have in common. A block begins at any even address where `whole`, else at any.
#include "quantize/format.cuh"

namespace baracuda {

BARACUDA_D float gguf_half(const u8* from, bool whole) {
  u32 bits;
  if (whole) bits = __ldg(reinterpret_cast<const u16*>(from));
  else bits = __ldg(from) | static_cast<u32>(__ldg(from + 1)) << 8;
  return widen(__ushort_as_half(static_cast<u16>(bits)));
}

BARACUDA_D float signed_byte(u32 word, int at) { return small_whole((word >> (8 * at) & 255u) ^ 128u) - 128.0f; }

// The table of IQ4_NL and IQ4_XS, as bytes above -128, four a word.
BARACUDA_D float iq4_value(u32 code) {
  const u32 low = __byte_perm(0x3f2d1801u, 0x766a5d4fu, code & 7u),
            high = __byte_perm(0xa6998d81u, 0xf1d9c5b5u, code & 7u);
  return small_whole((code & 8u ? high : low) & 255u) - 128.0f;
}

}  // namespace baracuda
