// What threads of a warp, and of a warpgroup, do together.
#include "grid.hpp"

namespace simt {

namespace {

struct Shuffled {
  u32 a, b, c;
};
struct Received {
  u32 value;
  bool inside;
};

void shuffle(Meeting& m) {
  const Shuffled* of[warp_size] = {};  // each lane
  for (u32 n = 0; n < m.there.size(); ++n) of[m.there[n]->lane] = &brought<Shuffled>(m, n);
  for (u32 n = 0; n < m.there.size(); ++n) {
    const auto [a, b, c] = brought<Shuffled>(m, n);
    const u32 lane = m.there[n]->lane, segment = c >> 8 & 31, clamp = c & 31, low = lane & segment;
    const u32 high = low | (clamp & ~segment), by = b & 31;
    s32 from = 0;
    bool inside = false;
    switch (static_cast<Shuffle>(m.how)) {
      case Shuffle::up: from = static_cast<s32>(lane - by), inside = from >= static_cast<s32>(high); break;
      case Shuffle::down: from = lane + by, inside = from <= static_cast<s32>(high); break;
      case Shuffle::bfly: from = lane ^ by, inside = from <= static_cast<s32>(high); break;
      case Shuffle::idx: from = low | (by & ~segment), inside = from <= static_cast<s32>(high); break;
    }
    if (!inside) from = lane;
    const Shuffled* const found = static_cast<u32>(from) < warp_size ? of[from] : nullptr;
    given<Received>(m, n) = {found ? found->a : 0xdeadbeef, inside};  // the latter of a lane that is not there
  }
}

void count_votes(Meeting& m) {
  u32 ballot = 0;
  for (u32 n = 0; n < m.there.size(); ++n) ballot |= static_cast<u32>(brought<u32>(m, n) != 0) << m.there[n]->lane;
  for (u32 n = 0; n < m.there.size(); ++n) {
    u32 result = 0;
    switch (static_cast<Vote>(m.how)) {
      case Vote::any: result = ballot != 0; break;
      case Vote::all: result = static_cast<size_t>(__builtin_popcount(ballot)) == m.there.size(); break;
      case Vote::ballot: result = ballot; break;
      case Vote::elect: result = n == 0; break;
      case Vote::match:
        for (u32 k = 0; k < m.there.size(); ++k) {
          result |= static_cast<u32>(brought<u32>(m, k) == brought<u32>(m, n)) << m.there[k]->lane;
        }
    }
    given<u32>(m, n) = result;
  }
}

// Matrices of 8 by 8 16-bit elements: a thread holds elements 2 t and 2 t + 1 of row g, of rows or across.
u32 pair_of(const u16 (&x)[8][8], u32 lane, bool trans) {
  const u32 g = lane / 4, t = 2 * (lane % 4);
  return trans ? x[t][g] | static_cast<u32>(x[t + 1][g]) << 16 : x[g][t] | static_cast<u32>(x[g][t + 1]) << 16;
}
void put_pair(u16 (&x)[8][8], u32 lane, bool trans, u32 pair) {
  const u32 g = lane / 4, t = 2 * (lane % 4);
  (trans ? x[t][g] : x[g][t]) = static_cast<u16>(pair), (trans ? x[t + 1][g] : x[g][t + 1]) = static_cast<u16>(pair >> 16);
}

struct Matrices {
  u32 address;
  const u32* pairs;
};

void load_matrices(Meeting& m) {
  const int count = static_cast<int>(m.how / 2);
  for (int k = 0; k < count; ++k) {
    u16 x[8][8];
    for (int row = 0; row < 8; ++row) {
      memcpy(x[row], m.there[0]->shared + brought<Matrices>(m, 8 * k + row).address, 16);
    }
    for (u32 n = 0; n < warp_size; ++n) static_cast<u32*>(m.there[n]->given)[k] = pair_of(x, n, m.how % 2);
  }
}
void store_matrices(Meeting& m) {
  const int count = static_cast<int>(m.how / 2);
  for (int k = 0; k < count; ++k) {
    u16 x[8][8];
    for (u32 n = 0; n < warp_size; ++n) put_pair(x, n, m.how % 2, brought<Matrices>(m, n).pairs[k]);
    for (int row = 0; row < 8; ++row) {
      memcpy(m.there[0]->shared + brought<Matrices>(m, 8 * k + row).address, x[row], 16);
    }
  }
}
void turn_matrix(Meeting& m) {
  u16 x[8][8];
  for (u32 n = 0; n < warp_size; ++n) put_pair(x, n, false, brought<u32>(m, n));
  for (u32 n = 0; n < warp_size; ++n) given<u32>(m, n) = pair_of(x, n, true);
}

float number(Half type, u16 word) {
  return type == Half::f16 ? static_cast<float>(as<f16>(word)) : static_cast<float>(as<bf16>(word));
}
float low_of(Half type, u32 pair) { return number(type, static_cast<u16>(pair)); }
float high_of(Half type, u32 pair) { return number(type, static_cast<u16>(pair >> 16)); }

constexpr u32 deep = 32;  // elements along k of a product, at most: those of 32 bytes
bool whole(Half type) { return type == Half::s8 || type == Half::u8; }  // integers, whose sums are
u32 size_of(Half type) { return type == Half::tf32 ? 4 : type == Half::e4m3 || type == Half::e5m2 || whole(type) ? 1 : 2; }
float element_at(Half type, const char* at) {
  u32 word = 0;
  memcpy(&word, at, size_of(type));
  switch (type) {
    case Half::tf32: return as<float>(word & 0xffffe000u);  // of 10 digits, the others are not read
    case Half::e4m3: return as<e4m3>(word);
    case Half::e5m2: return as<e5m2>(word);
    case Half::s8: return static_cast<signed char>(word);
    case Half::u8: return static_cast<float>(word);
    default: return number(type, static_cast<u16>(word));
  }
}

// 16 by 16 elements as a warp has a left operand.
template <int K> void unpack(Half type, float (*to)[K], u32 lane, const u32* a) {
  const u32 g = lane / 4, t = 2 * (lane % 4);
  for (int n = 0; n < 4; ++n) {
    to[g + n % 2 * 8][t + n / 2 * 8] = low_of(type, a[n]), to[g + n % 2 * 8][t + n / 2 * 8 + 1] = high_of(type, a[n]);
  }
}

struct Fragments {
  const u32 *a, *b;
  const float* c;
};
void multiply(Meeting& m) {  // 32 bytes along k
  const Half type = static_cast<Half>(m.how);
  const u32 size = size_of(type), each = 4 / size;  // elements of a register
  float a[16][deep], b[deep][8];
  for (u32 n = 0; n < warp_size; ++n) {
    const Fragments& f = brought<Fragments>(m, n);
    const u32 g = n / 4, t = n % 4;
    for (u32 e = 0; e < each; ++e) {
      const auto element = [&](const u32& word) {
        return element_at(type, reinterpret_cast<const char*>(&word) + e * size);
      };
      for (u32 r = 0; r < 4; ++r) a[g + r % 2 * 8][(t + r / 2 * 4) * each + e] = element(f.a[r]);
      for (u32 r = 0; r < 2; ++r) b[(t + r * 4) * each + e][g] = element(f.b[r]);
    }
  }
  for (u32 i = 0; i < 16; ++i) {
    const u32 first = i % 8 * 4, e = i / 8 * 2;  // of the lanes that have a row, and of their elements
    double sums[8];
    for (u32 j = 0; j < 8; ++j) sums[j] = brought<Fragments>(m, first + j / 2).c[e + j % 2];
    for (u32 k = 0; k < 8 * each; ++k) {
      const double x = a[i][k];
      for (u32 j = 0; j < 8; ++j) sums[j] += x * b[k][j];
    }
    for (u32 j = 0; j < 8; ++j) {
      static_cast<float*>(m.there[first + j / 2]->given)[e + j % 2] = static_cast<float>(sums[j]);
    }
  }
}

struct ByteFragments {
  const u32 *a, *b, *c;
  Half type, right;
};
// D[16, 8] = A[16, 32] B[32, 8] + C of integers of 8 bits, modulo 2^32: registers hold four of them along k.
void multiply_bytes(Meeting& m) {
  for (u32 n = 0; n < warp_size; ++n) {
    for (u32 e = 0; e < 4; ++e) {
      const u32 row = n / 4, column = n % 4 * 2 + e % 2;
      u32 sum = brought<ByteFragments>(m, n).c[e];
      for (u32 k = 0; k < 32; ++k) {
        const ByteFragments &left = brought<ByteFragments>(m, 4 * row + k % 16 / 4), &right = brought<ByteFragments>(m, 4 * column + k % 16 / 4);
        const float x = element_at(left.type, reinterpret_cast<const char*>(left.a + e / 2 + k / 16 * 2) + k % 4);
        const float y = element_at(right.right, reinterpret_cast<const char*>(right.b + k / 16) + k % 4);
        sum += static_cast<u32>(static_cast<int>(x * y));
      }
      static_cast<u32*>(m.there[n]->given)[e] = sum;
    }
  }
}

struct DoubleFragments {
  double a, b, c[2];
};
// D[8, 8] = A[8, 4] B[4, 8] + C: lane (g, t) has A[g, t], B[t, g] and columns 2 t and 2 t + 1 of row g of C.
void multiply_doubles(Meeting& m) {
  for (u32 n = 0; n < warp_size; ++n) {
    for (u32 e = 0; e < 2; ++e) {
      double sum = brought<DoubleFragments>(m, n).c[e];
      const u32 row = n / 4, column = n % 4 * 2 + e;
      for (u32 k = 0; k < 4; ++k) {
        const double left = brought<DoubleFragments>(m, 4 * row + k).a, right = brought<DoubleFragments>(m, 4 * column + k).b;
        sum = fma(left, right, sum);
      }
      static_cast<double*>(m.there[n]->given)[e] = sum;
    }
  }
}

void matrices_fit(Thread& t, u32 line, int count, u32 address, bool writes) {
  if (static_cast<int>(t.lane) < 8 * count) shared_at(t, line, address, 16, writes);
}

}  // namespace

u32 shfl(Thread& t, u32 line, Shuffle how, u32 a, u32 b, u32 c, u32 mask, bool* inside) {
  const Shuffled mine{a, b, c};
  Received got;
  meet(t, line, warp_size, mask, shuffle, static_cast<long>(how), &mine, &got);
  if (inside) *inside = got.inside;
  return got.value;
}
u32 vote(Thread& t, u32 line, Vote how, u32 value, u32 mask) {
  u32 got;
  meet(t, line, warp_size, mask, count_votes, static_cast<long>(how), &value, &got);
  return got;
}
void ldmatrix(Thread& t, u32 line, u32* d, int count, bool trans, u32 address) {
  const Matrices mine{address, nullptr};
  matrices_fit(t, line, count, address, false);
  meet(t, line, warp_size, ~0u, load_matrices, 2 * count + trans, &mine, d);
}
void stmatrix(Thread& t, u32 line, const u32* a, int count, bool trans, u32 address) {
  const Matrices mine{address, a};
  matrices_fit(t, line, count, address, true);
  meet(t, line, warp_size, ~0u, store_matrices, 2 * count + trans, &mine, nullptr);
}
u32 movmatrix(Thread& t, u32 line, u32 a) {
  u32 got;
  meet(t, line, warp_size, ~0u, turn_matrix, 0, &a, &got);
  return got;
}
void mma(Thread& t, u32 line, Half type, float (&d)[4], const u32 (&a)[4], const u32 (&b)[2], const float (&c)[4]) {
  const Fragments mine{a, b, c};
  float got[4];
  meet(t, line, warp_size, ~0u, multiply, static_cast<long>(type), &mine, got);
  memcpy(d, got, sizeof got);
}

void mma_bytes(Thread& t, u32 line, Half type, Half right, u32 (&d)[4], const u32 (&a)[4], const u32 (&b)[2], const u32 (&c)[4]) {
  const ByteFragments mine{a, b, c, type, right};
  u32 got[4];
  meet(t, line, warp_size, ~0u, multiply_bytes, 0, &mine, got);
  memcpy(d, got, sizeof got);
}

void mma_doubles(Thread& t, u32 line, double (&d)[2], double a, double b, const double (&c)[2]) {
  const DoubleFragments mine{a, b, {c[0], c[1]}};
  double got[2];
  meet(t, line, warp_size, ~0u, multiply_doubles, 0, &mine, got);
  memcpy(d, got, sizeof got);
}

// ---- a warpgroup ----

namespace {

// Operands of 32 bytes along k: a 128-byte swizzle, rows of 128 bytes.
struct Operand {
  u32 start, leading, stride;
  explicit Operand(u64 d) : start((d & 0x3fff) << 4), leading((d >> 16 & 0x3fff) << 4), stride((d >> 32 & 0x3fff) << 4) {}
  u32 at(u32 row, u32 k, bool across, u32 size) const {
    const u32 linear = across ? start + row / 64 * leading + k / 8 * stride + k % 8 * 128 + row % 64 * 2
                              : start + row / 8 * stride + row % 8 * 128 + k * size;
    return linear ^ (linear >> 7 & 7) << 4;
  }
};

struct Product {
  Half type, right;  // of both operands
  int n;
  u32* d;
  const u32* a;
  u64 a_at, b_at;
  bool a_across, b_across, adds;
};

void gather(Meeting& m, Half type, u64 descriptor, bool across, u32 rows, float (*to)[deep]) {
  Thread& t = *m.there[0];
  Block& b = *t.block;
  if (descriptor >> 62 != 1) fail(t, m.line, "an operand without the 128-byte swizzle", descriptor);
  const Operand x(descriptor);
  auto& chunks = b.products[t.number / group_size].open;
  const u32 size = size_of(type);
  for (u32 row = 0; row < rows; ++row) {
    for (u32 k = 0; k < 32 / size; ++k) {
      const u32 at = x.at(row, k, across, size);
      if (at + size > b.size) fail(t, m.line, "an operand outside shared memory", at);
      to[row][k] = element_at(type, b.shared + at);
      if (!chunks.empty() && chunks.back() == at / 16) continue;
      published(t, m.line, at / 16);
      chunks.push_back(at / 16), ++b.read[at / 16];
    }
  }
}

void multiply_group(Meeting& m) {
  const Product& p = brought<Product>(m, 0);
  alignas(64) float a[64][deep], b[256][deep], turned[deep][256];
  const int depth = 32 / static_cast<int>(size_of(p.type));
  if (p.a) {
    for (u32 n = 0; n < group_size; ++n) unpack<deep>(p.type, a + n / 32 * 16, n % 32, brought<Product>(m, n).a);
  } else {
    gather(m, p.type, p.a_at, p.a_across, 64, a);
  }
  gather(m, p.right, p.b_at, p.b_across, p.n, b);
  for (int j = 0; j < p.n; ++j) {
    for (int k = 0; k < depth; ++k) turned[k][j] = b[j][k];
  }
  for (u32 i = 0; i < 64; ++i) {
    alignas(64) float sums[256] = {};
    for (int k = 0; k < depth; ++k) {
      const float x = a[i][k];
      for (int j = 0; j < p.n; ++j) sums[j] += x * turned[k][j];
    }
    for (int j = 0; j < p.n; ++j) {
      const Product& mine = brought<Product>(m, i / 16 * 32 + i % 8 * 4 + j % 8 / 2);
      u32& word = mine.d[j / 8 * 4 + i % 16 / 8 * 2 + j % 2];
      if (whole(p.type)) word = (p.adds ? word : 0) + static_cast<u32>(static_cast<int>(sums[j]));
      else word = bits(p.adds ? as<float>(word) + sums[j] : sums[j]);
    }
  }
}

// The left operand is 2:4 sparse and compressed; metadata as in packed.cpp, of 16 rows by the lanes of a warp.
struct SparseProduct {
  Half type;
  int n;
  u32* d;
  u64 a_at, b_at;
  u32 metadata;
  bool adds;
};
u32 places(Meeting& m, u32 size, u32 row, u32 group) {
  const u32 first = row / 16 * 32 + row % 8 * 4, high = row % 16 / 8;
  if (size == 2) return brought<SparseProduct>(m, first + group / 4).metadata >> (16 * high + group % 4 * 4) & 15;
  return brought<SparseProduct>(m, first + high + group / 8 * 2).metadata >> (group % 8 * 4) & 15;
}
void multiply_sparse_group(Meeting& m) {
  const SparseProduct& p = brought<SparseProduct>(m, 0);
  const u32 size = size_of(p.type), kept = 32 / size;  // elements of a row that are stored, half of k
  alignas(64) float a[64][deep], b[2][256][deep];
  gather(m, p.type, p.a_at, false, 64, a);
  for (u32 half = 0; half < 2; ++half) gather(m, p.type, p.b_at + half * (32 >> 4), false, p.n, b[half]);
  for (u32 i = 0; i < 64; ++i) {
    u32 at[deep];  // where along k
    for (u32 k = 0; k < kept; ++k) at[k] = k / 2 * 4 + (places(m, size, i, k / 2) >> (k % 2 * 2) & 3);
    for (int j = 0; j < p.n; ++j) {
      float sum = 0;
      for (u32 k = 0; k < kept; ++k) sum += a[i][k] * b[at[k] / kept][j][at[k] % kept];
      u32& word = brought<SparseProduct>(m, i / 16 * 32 + i % 8 * 4 + j % 8 / 2).d[j / 8 * 4 + i % 16 / 8 * 2 + j % 2];
      if (whole(p.type)) word = (p.adds ? word : 0) + static_cast<u32>(static_cast<int>(sum));
      else word = bits(p.adds ? as<float>(word) + sum : sum);
    }
  }
}

Products& products_of(Meeting& m, u32& warp) {
  const Fiber& f = *m.there[0];
  warp = f.number / warp_size % 4;
  return f.block->products[f.number / group_size];
}
void warp_commit(Meeting& m) {
  u32 warp;
  Products& p = products_of(m, warp);
  if (p.committed[warp]++ < p.groups.size()) return;
  p.groups.push_back(std::move(p.open)), p.warps.push_back(4);
  p.open.clear();
}
void warp_wait(Meeting& m) {
  u32 warp;
  Products& p = products_of(m, warp);
  for (u32& n = p.retired[warp]; n + m.how < p.committed[warp]; ++n) {
    if (--p.warps[n] != 0) continue;
    for (u32 chunk : p.groups[n]) --m.there[0]->block->read[chunk];
    p.groups[n] = {};
  }
}

}  // namespace

void wgmma(Thread& t, u32 line, Half type, Half right, int n, u32* d, const u32* a, u64 a_at, bool a_across, u64 b_at, bool b_across,
           bool adds) {
  const Product mine{type, right, n, d, a, a_at, b_at, a_across, b_across, adds};
  meet(t, line, group_size, ~0u, multiply_group, line, &mine, nullptr);
}
void wgmma_sparse(Thread& t, u32 line, Half type, int n, u32* d, u64 a_at, u64 b_at, u32 metadata, bool adds) {
  const SparseProduct mine{type, n, d, a_at, b_at, metadata, adds};
  meet(t, line, group_size, ~0u, multiply_sparse_group, line, &mine, nullptr);
}
void wgmma_commit(Thread& t, u32 line) { meet(t, line, warp_size, ~0u, warp_commit, 0, nullptr, nullptr); }
void wgmma_wait(Thread& t, u32 line, u32 pending) { meet(t, line, warp_size, ~0u, warp_wait, pending, nullptr, nullptr); }

}  // namespace simt
