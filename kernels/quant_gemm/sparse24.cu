// sparse24       2:4 sparsity along the last axis: of every four neighbours two are kept.
//
//   prune        y[4 g + j] = x[4 g + j] where j is kept in group g, else 0; mask[4 g + j] = whether it is
//   compress     values[2 g], values[2 g + 1] = the kept elements of group g; metadata nibble g = their places
//   decompress   y[4 g + place] = value, all else 0
//   select       values[2 g + e] = y[4 g + place e], the transpose of decompress
//
// A thread has two groups, whose places are a byte of metadata, the first group in its low half; a nibble has the place
// of the first kept element in its low two bits. Kept are the two largest by magnitude, of equal ones the first; NaN is
// the largest of all. Where the places of a nibble are equal, decompress has the second element there.
#include <baracuda/index.cuh>
#include <baracuda/vector.cuh>

namespace baracuda {
namespace sparse24 {

constexpr u32 unused = 4;  // the nibble of a group that does not exist: places 0 and 1

// In the order of magnitudes, all NaN alike.
template <class T> BARACUDA_D u64 magnitude(T x) {
  if constexpr (is_integer<T>) {
    const int wide = static_cast<int>(x);
    return static_cast<u64>(wide < 0 ? -wide : wide);
  } else if constexpr (is_same<T, double>) {
    const u64 bits = static_cast<u64>(__double_as_longlong(x)) & ~(1ull << 63);
    return min<u64>(bits, 0x7ff0000000000001ull);
  } else {
    const float wide = to_acc(x);
    return min<u32>(__float_as_uint(wide) & 0x7fffffffu, 0x7f800001u);
  }
}

template <class T> BARACUDA_D u32 places_of(const T (&x)[4]) {
  u64 key[4];
#pragma unroll
  for (int j = 0; j < 4; ++j) key[j] = magnitude(x[j]);
  u32 first = 0, second = 4;
#pragma unroll
  for (u32 j = 1; j < 4; ++j) first = key[j] > (first == 0 ? key[0] : first == 1 ? key[1] : key[2]) ? j : first;
  u64 best = 0;
#pragma unroll
  for (u32 j = 0; j < 4; ++j) {
    if (j != first && (second == 4 || key[j] > best)) second = j, best = key[j];
  }
  return min(first, second) | max(first, second) << 2;
}

template <class T> BARACUDA_D T taken(const T (&x)[4], u32 place) {
  return place & 2 ? (place & 1 ? x[3] : x[2]) : (place & 1 ? x[1] : x[0]);
}

// Where a thread's operands begin: of its row, and its two groups, which have p.each elements of an operand.
struct Pair {
  i64 at[4];   // of dense, values, metadata and mask
  i64 groups;  // that exist, 1 or 2, or none
  template <class P> BARACUDA_D explicit Pair(const P& p) : groups(0) {
    u64 byte;
    const u64 row = divmod(static_cast<u64>(thread_index()), static_cast<u64>(p.pairs), byte);
    if (static_cast<i64>(row) >= p.rows) return;
    const i64 first = static_cast<i64>(byte);
    offsets<i64, 4>(static_cast<i64>(row), p.rank, p.shape, p.strides, at);
#pragma unroll
    for (int n = 0; n < 4; ++n) at[n] += p.each[n] * first * p.steps[n];
    groups = min<i64>(p.groups - 2 * first, 2);
  }
};

// The N elements that a pair of groups has of an operand.
template <class T, int N, class P>
BARACUDA_D Vec<T, N> get(const P& p, int operand, const void* from, const Pair& pair) {
  const T* const at = static_cast<const T*>(from) + pair.at[operand];
  if (p.wide >> operand & 1 && pair.groups == 2) return load<N>(at);
  return load_strided<T, N>(at, p.steps[operand], static_cast<i32>(pair.groups) * (N / 2));
}
template <class T, int N, class P>
BARACUDA_D void put(const P& p, int operand, void* to, const Pair& pair, const Vec<T, N>& x) {
  T* const at = static_cast<T*>(to) + pair.at[operand];
  if (p.wide >> operand & 1 && pair.groups == 2) store(at, x);
  else store_strided(at, p.steps[operand], x, static_cast<i32>(pair.groups) * (N / 2));
}
template <class T> BARACUDA_D void group_of(T (&x)[4], const Vec<T, 8>& both, int g) {
#pragma unroll
  for (int j = 0; j < 4; ++j) x[j] = both[4 * g + j];
}
template <class P> BARACUDA_D u32 metadata_of(const P& p, const Pair& pair) {
  return static_cast<const u8*>(p.metadata)[pair.at[2]];
}

}  // namespace sparse24

template <class T> BARACUDA_D void sparse24_prune(const Sparse24Params& p) {
  const sparse24::Pair pair(p);
  if (pair.groups <= 0) return;
  const auto x = sparse24::get<T, 8>(p, 3, p.source, pair);
  Vec<T, 8> y;
  Vec<u8, 8> mask;
#pragma unroll
  for (int g = 0; g < 2; ++g) {
    T four[4];
    sparse24::group_of(four, x, g);
    const u32 places = sparse24::places_of(four);
#pragma unroll
    for (u32 j = 0; j < 4; ++j) {
      const bool kept = j == (places & 3) || j == places >> 2;
      y[4 * g + j] = kept ? four[j] : T(0);
      mask[4 * g + j] = kept;
    }
  }
  if (p.dense != nullptr) sparse24::put(p, 0, p.dense, pair, y);
  if (p.mask != nullptr) sparse24::put(p, 1, p.mask, pair, mask);
}

template <class T> BARACUDA_D void sparse24_compress(const Sparse24Params& p) {
  const sparse24::Pair pair(p);
  if (pair.groups <= 0) return;
  const auto x = sparse24::get<T, 8>(p, 0, p.dense, pair);
  Vec<T, 4> values;
  u32 byte = 0;
#pragma unroll
  for (int g = 0; g < 2; ++g) {
    T four[4];
    sparse24::group_of(four, x, g);
    const u32 places = sparse24::places_of(four);
    values[2 * g] = sparse24::taken(four, places & 3), values[2 * g + 1] = sparse24::taken(four, places >> 2);
    byte |= (g < pair.groups ? places : sparse24::unused) << 4 * g;
  }
  sparse24::put(p, 1, p.values, pair, values);
  static_cast<u8*>(p.metadata)[pair.at[2]] = static_cast<u8>(byte);
}

template <class T> BARACUDA_D void sparse24_decompress(const Sparse24Params& p) {
  const sparse24::Pair pair(p);
  if (pair.groups <= 0) return;
  const u32 byte = sparse24::metadata_of(p, pair);
  const auto values = sparse24::get<T, 4>(p, 1, p.values, pair);
  Vec<T, 8> y;
#pragma unroll
  for (int g = 0; g < 2; ++g) {
    const u32 places = byte >> 4 * g & 15;
#pragma unroll
    for (u32 j = 0; j < 4; ++j) {
      y[4 * g + j] = j == places >> 2 ? values[2 * g + 1] : j == (places & 3) ? values[2 * g] : T(0);
    }
  }
  sparse24::put(p, 0, p.dense, pair, y);
}

template <class T> BARACUDA_D void sparse24_select(const Sparse24Params& p) {
  const sparse24::Pair pair(p);
  if (pair.groups <= 0) return;
  const u32 byte = sparse24::metadata_of(p, pair);
  const auto x = sparse24::get<T, 8>(p, 0, p.dense, pair);
  Vec<T, 4> values;
#pragma unroll
  for (int g = 0; g < 2; ++g) {
    T four[4];
    sparse24::group_of(four, x, g);
    const u32 places = byte >> 4 * g & 15;
    const bool twice = (places & 3) == places >> 2;  // the second element stands where the first would
    values[2 * g] = twice ? T(0) : sparse24::taken(four, places & 3);
    values[2 * g + 1] = sparse24::taken(four, places >> 2);
  }
  sparse24::put(p, 1, p.values, pair, values);
}

}  // namespace baracuda
