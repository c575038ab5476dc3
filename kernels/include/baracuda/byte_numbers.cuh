#pragma once
// byte_numbers   the bytes of words as floats, without conversions, which are slow: as the lower bits of 2^23.
#include <baracuda/types.cuh>

namespace baracuda {

constexpr u32 each_byte(u32 x) { return x * 0x01010101u; }

// Byte `at` of a word less a whole number; the difference is exact.
BARACUDA_D float byte_number(u32 word, int at, float less = 0.0f) {
  return __uint_as_float(__byte_perm(word, 0x4b000000u, 0x7440u | at)) - (0x1p23f + less);
}

// The same of int8, by way of a word whose bytes have their sign bits flipped.
BARACUDA_D u32 flip_signs(u32 word) { return word ^ each_byte(128); }
BARACUDA_D float flipped_byte(u32 word, int at) { return byte_number(word, at, 128.0f); }

}  // namespace baracuda
