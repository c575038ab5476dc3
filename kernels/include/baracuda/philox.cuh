#pragma once
// philox     Philox4x32-10, the counter-based generator of Random123 (Salmon, Moraes, Dror, Shaw, SC 2011).
//
// The library's convention, equal bit for bit in NumPy: key = (seed lo, seed hi); counter = (i lo, i hi, offset lo,
// offset hi); element e, the logical row-major index and never the thread, is word e % 4 of block i = e / 4; a uniform
// is (word >> 8) * 2^-24, in [0, 1). The three vectors of Random123's kat_vectors for philox4x32 10 are tested.
#include <baracuda/types.cuh>

namespace baracuda {

struct Philox4 {
  u32 x, y, z, w;
};

// The product a b. From a product of two u64 the assembler of 13.0 makes one more instruction, which adds 0 to its
// upper half.
// PTX ISA, Integer Arithmetic Instructions: mul (.wide.u32).
BARACUDA_D u64 wide_product(u32 a, u32 b) {
  u64 product;
  asm("mul.wide.u32 %0, %1, %2;" : "=l"(product) : "r"(a), "r"(b));
  return product;
}

BARACUDA_D Philox4 philox_round(const Philox4& c, u32 k0, u32 k1) {
  const u64 p0 = wide_product(0xD2511F53u, c.x);
  const u64 p1 = wide_product(0xCD9E8D57u, c.z);
  return {static_cast<u32>(p1 >> 32) ^ c.y ^ k0, static_cast<u32>(p1), static_cast<u32>(p0 >> 32) ^ c.w ^ k1,
          static_cast<u32>(p0)};
}

BARACUDA_D Philox4 philox4x32_10(u32 c0, u32 c1, u32 c2, u32 c3, u32 k0, u32 k1) {
  Philox4 c{c0, c1, c2, c3};
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    c = philox_round(c, k0, k1);
    k0 += 0x9E3779B9u;  // golden ratio
    k1 += 0xBB67AE85u;  // sqrt(3) - 1
  }
  return c;
}

// Words of elements 4 * block … 4 * block + 3. Prefer this form: one call serves four elements.
BARACUDA_D Philox4 philox_block(u64 seed, u64 offset, u64 block) {
  return philox4x32_10(static_cast<u32>(block), static_cast<u32>(block >> 32), static_cast<u32>(offset),
                       static_cast<u32>(offset >> 32), static_cast<u32>(seed), static_cast<u32>(seed >> 32));
}

// Blocks `block` … `block` + N - 1, all of them round by round, so that they share each round's key.
template <int N> BARACUDA_D void philox_blocks(u64 seed, u64 offset, u64 block, Philox4 (&out)[N]) {
#pragma unroll
  for (int n = 0; n < N; ++n) {
    const u64 at = block + n;
    out[n] = {static_cast<u32>(at), static_cast<u32>(at >> 32), static_cast<u32>(offset),
              static_cast<u32>(offset >> 32)};
  }
  u32 k0 = static_cast<u32>(seed), k1 = static_cast<u32>(seed >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
#pragma unroll
    for (int n = 0; n < N; ++n) out[n] = philox_round(out[n], k0, k1);
    k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
  }
}

// By selection, not by index: registers have no address.
BARACUDA_HD constexpr u32 philox_word(const Philox4& p, u32 lane) {
  const u32 low = lane & 1 ? p.y : p.x, high = lane & 1 ? p.w : p.z;
  return lane & 2 ? high : low;
}

BARACUDA_D u32 philox_bits(u64 seed, u64 offset, u64 element) {
  return philox_word(philox_block(seed, offset, element >> 2), static_cast<u32>(element & 3));
}

// Words of elements element … element + N - 1: each block is generated once, wherever in it the first element lies.
template <int N> BARACUDA_D void philox_words(u64 seed, u64 offset, u64 element, u32 (&out)[N]) {
  constexpr int blocks = (N + 2) / 4 + 1;
  const u32 shift = static_cast<u32>(element & 3);
  u32 words[4 * blocks] = {};
#pragma unroll
  for (int b = 0; b < blocks; ++b) {
    if (4 * b < static_cast<int>(shift) + N) {
      const Philox4 four = philox_block(seed, offset, (element >> 2) + b);
      words[4 * b] = four.x, words[4 * b + 1] = four.y, words[4 * b + 2] = four.z, words[4 * b + 3] = four.w;
    }
  }
#pragma unroll
  for (int k = 0; k < N; ++k) {  // by selection, as above
    const u32 low = shift & 1 ? words[k + 1] : words[k];
    const u32 high = shift & 1 ? words[k + 3] : words[k + 2];
    out[k] = shift & 2 ? high : low;
  }
}

// Both steps are exact, so any IEEE machine agrees.
BARACUDA_HD constexpr float uniform_from_bits(u32 bits) {
  return static_cast<float>(bits >> 8) * 5.9604644775390625e-8f;
}

BARACUDA_D float philox_uniform(u64 seed, u64 offset, u64 element) {
  return uniform_from_bits(philox_bits(seed, offset, element));
}

}  // namespace baracuda
