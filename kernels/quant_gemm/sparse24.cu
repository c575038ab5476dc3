// sparse24       2:4 sparsity along the last axis: of every four neighbours two are kept.
//
//   prune        y[4 g + j] = x[4 g + j] where j is kept in group g, else 0; mask[4 g + j] = whether it is
//   compress     values[2 g], values[2 g + 1] = the kept elements of group g; metadata nibble g = their places
//   decompress   y[4 g + place] = value, all else 0
//   select       values[2 g + e] = y[4 g + place e], the transpose of decompress
//
// A thread has two groups, whose places are a byte of metadata, the first group in its low half, or, where all operands
// are dense, two such pairs; a nibble has the place of the first kept element in its low two bits. Kept are the two
// largest by magnitude, of equal ones the first; NaN is the largest of all. Where the places of a nibble are equal,
// decompress has the second element there.
#include <baracuda/index.cuh>
#include <baracuda/vector.cuh>

namespace baracuda {
namespace sparse24 {

constexpr u32 unused = 4;  // the nibble of a group that does not exist: places 0 and 1

// Elements are moved as whole numbers: of structs a choice would be a branch.
template <class T>
using Bits = conditional<sizeof(T) == 1, u8, conditional<sizeof(T) == 2, u16, conditional<sizeof(T) == 4, u32, u64>>>;

// In the order of magnitudes, all NaN alike: a float of which the exponent is full, and a fraction is there.
template <class T> BARACUDA_D auto magnitude(Bits<T> x) {
  if constexpr (is_integer<T>) {
    const int wide = static_cast<int>(static_cast<T>(x));
    return static_cast<u32>(wide < 0 ? -wide : wide);
  } else if constexpr (is_same<T, double>) {
    return min<u64>(x & ~(1ull << 63), 0x7ff0000000000001ull);
  } else if constexpr (is_half<T>) {
    return min<u32>(x & 0x7fffu, is_same<T, f16> ? 0x7c01u : 0x7f81u);
  } else {
    return min<u32>(x & 0x7fffffffu, 0x7f800001u);
  }
}

// Which two of four are kept: those before which at most one comes, being larger, or as large and earlier.
template <class T> struct Kept {
  using B = Bits<T>;
  bool at[4];
  BARACUDA_D explicit Kept(const B* x) {
    const auto a = magnitude<T>(x[0]), b = magnitude<T>(x[1]), c = magnitude<T>(x[2]), d = magnitude<T>(x[3]);
    const bool ba = b > a, ca = c > a, da = d > a, cb = c > b, db = d > b, dc = d > c;
    const auto two = [](bool x, bool y, bool z) { return (x && y) || (x && z) || (y && z); };
    at[0] = !two(ba, ca, da), at[1] = !two(!ba, cb, db), at[2] = !two(!ca, !cb, dc), at[3] = !two(!da, !db, !dc);
  }
  BARACUDA_D B first(const B* x) const { return at[0] ? x[0] : at[1] ? x[1] : x[2]; }
  BARACUDA_D B second(const B* x) const { return at[3] ? x[3] : at[2] ? x[2] : x[1]; }
  BARACUDA_D u32 places() const { return (at[0] ? 0u : at[1] ? 1u : 2u) | (at[3] ? 12u : at[2] ? 8u : 4u); }
};

template <class T> BARACUDA_D T taken(const T* x, u32 place) {
  return place & 2 ? (place & 1 ? x[3] : x[2]) : (place & 1 ? x[1] : x[0]);
}

// Where a thread's operands begin: of its PAIRS of groups, which have p.each elements of an operand each.
template <int PAIRS> struct Place {
  static constexpr int groups = 2 * PAIRS;
  i64 at[4];  // of dense, values, metadata and mask
  int there;  // groups that exist
  i64 one[4];
  u32 wide;

  // Of neighbours from pair `first` on, all of which exist, in dense operands.
  template <class P> BARACUDA_D Place(const P& p, i64 first) : there(groups), wide(~0u) {
#pragma unroll
    for (int n = 0; n < 4; ++n) at[n] = p.each[n] * first, one[n] = 1;
  }
  // Of a row's pair.
  template <class P> BARACUDA_D Place(const P& p, i64 row, i64 pair) : wide(p.wide) {
    static_assert(PAIRS == 1, "a row may end in half a pair");
    offsets<i64, 4>(row, p.rank, p.shape, p.strides, at);
#pragma unroll
    for (int n = 0; n < 4; ++n) at[n] += p.each[n] * pair * p.steps[n], one[n] = p.steps[n];
    there = static_cast<int>(min<i64>(p.groups - 2 * pair, 2));
  }

  // The elements of an operand, N of a pair.
  template <int N, class T> BARACUDA_D Vec<T, N * PAIRS> get(int operand, const T* from) const {
    const T* const start = from + at[operand];
    if (wide >> operand & 1 && there == groups) return load<N * PAIRS>(start);
    return load_strided<T, N * PAIRS>(start, one[operand], there * (N / 2));
  }
  template <int N, class T> BARACUDA_D void put(int operand, T* to, const Vec<T, N * PAIRS>& x) const {
    T* const start = to + at[operand];
    if (wide >> operand & 1 && there == groups) store(start, x);
    else store_strided(start, one[operand], x, there * (N / 2));
  }
};

// f(place) for what this thread has.
template <class P, class F> BARACUDA_D void each_place(const P& p, const F& f) {
  const i64 thread = thread_index();
  if (p.flat) {
    const i64 first = 2 * thread, count = p.rows * p.pairs;
    if (first + 1 < count) f(Place<2>(p, first));
    else if (first < count) f(Place<1>(p, first));
  } else {
    u64 pair;
    const u64 row = divmod(static_cast<u64>(thread), static_cast<u64>(p.pairs), pair);
    if (static_cast<i64>(row) < p.rows && p.groups > 0) f(Place<1>(p, static_cast<i64>(row), static_cast<i64>(pair)));
  }
}

}  // namespace sparse24

template <class T> BARACUDA_D void sparse24_prune(const Sparse24Params& p) {
  using B = sparse24::Bits<T>;
  sparse24::each_place(p, [&](auto place) {
    constexpr int groups = place.groups;
    const auto x = place.template get<8>(3, static_cast<const B*>(p.source));
    Vec<B, 4 * groups> y;
    Vec<u8, 4 * groups> mask;
#pragma unroll
    for (int g = 0; g < groups; ++g) {
      const sparse24::Kept<T> kept(x.v + 4 * g);
#pragma unroll
      for (int j = 0; j < 4; ++j) y[4 * g + j] = kept.at[j] ? x[4 * g + j] : B(0), mask[4 * g + j] = kept.at[j];
    }
    if (p.dense != nullptr) place.template put<8>(0, static_cast<B*>(p.dense), y);
    if (p.mask != nullptr) place.template put<8>(1, static_cast<u8*>(p.mask), mask);
  });
}

template <class T> BARACUDA_D void sparse24_compress(const Sparse24Params& p) {
  using B = sparse24::Bits<T>;
  sparse24::each_place(p, [&](auto place) {
    constexpr int groups = place.groups;
    const auto x = place.template get<8>(0, static_cast<const B*>(p.dense));
    Vec<B, 2 * groups> values;
    Vec<u8, groups / 2> bytes;
#pragma unroll
    for (int g = 0; g < groups; ++g) {
      const sparse24::Kept<T> kept(x.v + 4 * g);
      values[2 * g] = kept.first(x.v + 4 * g), values[2 * g + 1] = kept.second(x.v + 4 * g);
      const u32 places = g < place.there ? kept.places() : sparse24::unused;
      bytes[g / 2] = static_cast<u8>(g % 2 ? bytes[g / 2] | places << 4 : places);
    }
    place.template put<4>(1, static_cast<B*>(p.values), values);
    store(static_cast<u8*>(p.metadata) + place.at[2], bytes);
  });
}

template <class T> BARACUDA_D void sparse24_decompress(const Sparse24Params& p) {
  using B = sparse24::Bits<T>;
  sparse24::each_place(p, [&](auto place) {
    constexpr int groups = place.groups;
    const auto bytes = load<groups / 2>(static_cast<const u8*>(p.metadata) + place.at[2]);
    const auto values = place.template get<4>(1, static_cast<const B*>(p.values));
    Vec<B, 4 * groups> y;
#pragma unroll
    for (int g = 0; g < groups; ++g) {
      const u32 places = bytes[g / 2] >> 4 * (g % 2) & 15;
#pragma unroll
      for (u32 j = 0; j < 4; ++j) {
        y[4 * g + j] = j == places >> 2 ? values[2 * g + 1] : j == (places & 3) ? values[2 * g] : B(0);
      }
    }
    place.template put<8>(0, static_cast<B*>(p.dense), y);
  });
}

template <class T> BARACUDA_D void sparse24_select(const Sparse24Params& p) {
  using B = sparse24::Bits<T>;
  sparse24::each_place(p, [&](auto place) {
    constexpr int groups = place.groups;
    const auto bytes = load<groups / 2>(static_cast<const u8*>(p.metadata) + place.at[2]);
    const auto x = place.template get<8>(0, static_cast<const B*>(p.dense));
    Vec<B, 2 * groups> values;
#pragma unroll
    for (int g = 0; g < groups; ++g) {
      const u32 places = bytes[g / 2] >> 4 * (g % 2) & 15;
      const bool twice = (places & 3) == places >> 2;  // the second element stands where the first would
      values[2 * g] = twice ? B(0) : sparse24::taken(x.v + 4 * g, places & 3);
      values[2 * g + 1] = sparse24::taken(x.v + 4 * g, places >> 2);
    }
    place.template put<4>(1, static_cast<B*>(p.values), values);
  });
}

}  // namespace baracuda
