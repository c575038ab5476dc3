#pragma once
// packed     kinds of packed integer operands: how many bytes a line of k elements takes, and how words multiply.
//
//   Binary    eight signs in a byte, the first in the lowest bit, 1 for -1: a sum counts the bits that differ
//   Ternary   a of int8; b four codes in a byte, the first in the lowest two bits, a code c being the number c - 1
//   Int4      two numbers of [-8, 7] in a byte, the first in the low half
//   Uint4     two numbers of [0, 15] likewise
#include <baracuda/mma_bits.cuh>
#include <baracuda/mma_int8.cuh>
#include <baracuda/vector.cuh>

namespace baracuda::quant {

// Bytes x - y, each modulo 256, where bit 7 of no byte of x is set and y is at most 128.
BARACUDA_D u32 minus_bytes(u32 x, u32 y) { return ((x | 0x80808080u) - y) ^ 0x80808080u; }

// The numbers of a byte of four codes, as bytes.
BARACUDA_D u32 ternary_bytes(u32 codes) {
  const u32 pairs = (codes | codes << 12) & 0x000f000fu;
  return minus_bytes((pairs | pairs << 6) & 0x03030303u, 0x01010101u);
}

// The low and the high halves of a word's bytes, as bytes.
template <bool SIGNED> BARACUDA_D u32 low_halves(u32 word) {
  const u32 x = word & 0x0f0f0f0fu;
  return SIGNED ? minus_bytes(x ^ 0x08080808u, 0x08080808u) : x;
}
template <bool SIGNED> BARACUDA_D u32 high_halves(u32 word) { return low_halves<SIGNED>(word >> 4); }

// SLICE_B: bytes of a line of b in a slice, where a has 128. multiply: over 32 bytes of k. dot(sum, a, b): sum and the
// products of 16 bytes of b with those of a that belong to them, of which there are A_BYTES. finish: of the whole sum.
struct Binary {
  static constexpr int SLICE_B = 128, A_BYTES = 16;
  static BARACUDA_D i64 bytes_a(i64 k) { return div_up(k, 8); }
  static BARACUDA_D i64 bytes_b(i64 k) { return div_up(k, 8); }
  static BARACUDA_D void multiply(int (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) { mma_bits(d, a, b); }
  static BARACUDA_D int dot(int sum, const u32* a, const Vec<u32, 4>& b) {
#pragma unroll
    for (int n = 0; n < 4; ++n) sum += __popc(a[n] ^ b[n]);
    return sum;
  }
  static BARACUDA_D int finish(int sum, i64 k) { return static_cast<int>(k) - 2 * sum; }
};

struct Ternary {
  static constexpr int SLICE_B = 32, A_BYTES = 64;
  static BARACUDA_D i64 bytes_a(i64 k) { return k; }
  static BARACUDA_D i64 bytes_b(i64 k) { return div_up(k, 4); }
  static BARACUDA_D void multiply(int (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) { mma_int8<i8, i8>(d, a, b); }
  static BARACUDA_D int dot(int sum, const u32* a, const Vec<u32, 4>& b) {
#pragma unroll
    for (int n = 0; n < 16; ++n) {
      sum = __dp4a(static_cast<int>(a[n]), static_cast<int>(ternary_bytes(b[n / 4] >> n % 4 * 8 & 0xff)), sum);
    }
    return sum;
  }
  static BARACUDA_D int finish(int sum, i64) { return sum; }
};

template <bool SIGNED> struct Halves {
  static constexpr int SLICE_B = 128, A_BYTES = 16;
  static BARACUDA_D i64 bytes_a(i64 k) { return div_up(k, 2); }
  static BARACUDA_D i64 bytes_b(i64 k) { return div_up(k, 2); }
  static BARACUDA_D void multiply(int (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    u32 wide_a[4], wide_b[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int n = 0; n < 4; ++n) wide_a[n] = half ? high_halves<SIGNED>(a[n]) : low_halves<SIGNED>(a[n]);
#pragma unroll
      for (int n = 0; n < 2; ++n) wide_b[n] = half ? high_halves<SIGNED>(b[n]) : low_halves<SIGNED>(b[n]);
      mma_int8<i8, i8>(d, wide_a, wide_b);
    }
  }
  static BARACUDA_D int dot(int sum, const u32* a, const Vec<u32, 4>& b) {
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      const u32 low = low_halves<SIGNED>(b[n]), high = high_halves<SIGNED>(b[n]);
      sum = __dp4a(static_cast<int>(low_halves<SIGNED>(a[n])), static_cast<int>(low), sum);
      sum = __dp4a(static_cast<int>(high_halves<SIGNED>(a[n])), static_cast<int>(high), sum);
    }
    return sum;
  }
  static BARACUDA_D int finish(int sum, i64) { return sum; }
};
using Int4 = Halves<true>;
using Uint4 = Halves<false>;

}  // namespace baracuda::quant
