// Products of a warp whose left operand is 2:4 sparse, and of bits.
#include "grid.hpp"

namespace simt {

namespace {

struct SparseFragments {
  const u32 *a, *b, *c;
  u32 metadata;
};

// Element `index` of the words of a fragment, each of which has 4 / size elements.
double element_of(Half type, u32 size, const u32* words, u32 index) {
  u32 word = 0;
  memcpy(&word, reinterpret_cast<const char*>(words) + index * size, size);
  switch (type) {
    case Half::s8: return static_cast<signed char>(word);
    case Half::f16: return static_cast<float>(as<f16>(static_cast<u16>(word)));
    default: return static_cast<float>(as<bf16>(static_cast<u16>(word)));
  }
}

// Of row `row` the place in a group of four of its compressed elements 2 `group` and 2 `group` + 1: two bits each. Of
// 16-bit elements the first two lanes of four have the metadata, of rows g and g + 8 in halves and 16 of k each; of
// bytes all four have, lanes 0 and 2 of row g, 1 and 3 of row g + 8, and 32 of k each.
u32 places(const Meeting& m, u32 size, u32 row, u32 group) {
  const u32 g = row % 8, high = row / 8;
  if (size == 2) return brought<SparseFragments>(m, 4 * g + group / 4).metadata >> (16 * high + group % 4 * 4) & 15;
  return brought<SparseFragments>(m, 4 * g + high + group / 8 * 2).metadata >> (group % 8 * 4) & 15;
}

void multiply_sparse(Meeting& m) {
  const Half type = static_cast<Half>(m.how);
  const u32 size = type == Half::s8 ? 1 : 2, each = 4 / size, kept = 32 / size;  // elements of a register, and of a row
  double a[16][64] = {}, b[64][8];
  bool there[16][64] = {};
  for (u32 n = 0; n < warp_size; ++n) {
    const SparseFragments& f = brought<SparseFragments>(m, n);
    const u32 g = n / 4, t = n % 4;
    for (u32 r = 0; r < 4; ++r) {
      for (u32 e = 0; e < each; ++e) b[(t + 4 * r) * each + e][g] = element_of(type, size, f.b, r * each + e);
    }
  }
  for (u32 row = 0; row < 16; ++row) {
    for (u32 k = 0; k < kept; ++k) {
      const u32 lane = row % 8 * 4 + k / each % 4, word = row / 8 + k / (kept / 2) * 2;
      const u32 at = k / 2 * 4 + (places(m, size, row, k / 2) >> (k % 2 * 2) & 3);
      there[row][at] = true;
      a[row][at] += element_of(type, size, brought<SparseFragments>(m, lane).a, word * each + k % each);
    }
  }
  for (u32 n = 0; n < warp_size; ++n) {
    for (u32 e = 0; e < 4; ++e) {
      const u32 row = n / 4 + e / 2 * 8, column = n % 4 * 2 + e % 2, c = brought<SparseFragments>(m, n).c[e];
      double sum = 0;
      for (u32 k = 0; k < 2 * kept; ++k) {
        if (there[row][k]) sum += a[row][k] * b[k][column];
      }
      static_cast<u32*>(m.there[n]->given)[e] =
          size == 1 ? c + static_cast<u32>(static_cast<int>(sum)) : bits(static_cast<float>(as<float>(c) + sum));
    }
  }
}

struct BitFragments {
  const u32 *a, *b, *c;
};
void multiply_bits(Meeting& m) {
  for (u32 n = 0; n < warp_size; ++n) {
    for (u32 e = 0; e < 4; ++e) {
      const u32 row = n / 4, column = n % 4 * 2 + e % 2;
      u32 sum = brought<BitFragments>(m, n).c[e];
      for (u32 k = 0; k < 8; ++k) {  // words along k
        const u32 left = brought<BitFragments>(m, 4 * row + k % 4).a[e / 2 + k / 4 * 2];
        sum += static_cast<u32>(__builtin_popcount(left ^ brought<BitFragments>(m, 4 * column + k % 4).b[k / 4]));
      }
      static_cast<u32*>(m.there[n]->given)[e] = sum;
    }
  }
}

}  // namespace

void mma_sparse(Thread& t, u32 line, Half type, u32 (&d)[4], const u32 (&a)[4], const u32 (&b)[4], const u32 (&c)[4], u32 metadata) {
  const SparseFragments mine{a, b, c, metadata};
  u32 got[4];
  meet(t, line, warp_size, ~0u, multiply_sparse, static_cast<long>(type), &mine, got);
  memcpy(d, got, sizeof got);
}
void mma_bits(Thread& t, u32 line, u32 (&d)[4], const u32 (&a)[4], const u32 (&b)[2], const u32 (&c)[4]) {
  const BitFragments mine{a, b, c};
  u32 got[4];
  meet(t, line, warp_size, ~0u, multiply_bits, 0, &mine, got);
  memcpy(d, got, sizeof got);
}

}  // namespace simt
