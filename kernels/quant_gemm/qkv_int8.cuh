#pragma once
// qkv_int8   int8 matrices W [k, n] of any strides, three of which are multiplied by one x, and their values as floats.
#include <baracuda/types.cuh>

namespace baracuda {

// Byte I of a word whose bytes have their sign bits flipped, as the number that it is: the lower bits of 2^23.
BARACUDA_D float flipped_byte(u32 word, int i) {
  return __uint_as_float(__byte_perm(word, 0x4b000000u, 0x7440u | i)) - (0x1p23f + 128.0f);
}
BARACUDA_D u32 flip_signs(u32 word) { return word ^ 0x80808080u; }

}  // namespace baracuda
