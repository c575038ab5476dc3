// index      y = x picked at positions that several index arrays tell together; positions from indices, and back.
//
// A key is an index of one axis of x. Keys broadcast together, and the operands of the map are y, x without the axes that
// have keys, and the keys, all with the strides that they have along the axes of y.
#include <baracuda/map.cuh>
#include <baracuda/positions.cuh>
#include <baracuda/wanted.cuh>

namespace baracuda {

// The position that an index names, or -1 for none.
BARACUDA_D i64 position_in(i64 index, i64 extent, IndexMode mode) {
  if (mode == IndexMode::from_end) return position_of(index, extent);
  if (mode == IndexMode::strict) return static_cast<u64>(index) < static_cast<u64>(extent) ? index : -1;
  if (extent == 0 || index == no_index) return -1;
  if (mode == IndexMode::clip) return min(max(index, i64(0)), extent - 1);
  const i64 rest = index % extent;
  return rest < 0 ? rest + extent : rest;
}

// The keys of an element, on their way from memory: of two words of each one is read, without a branch.
template <int KEYS> struct KeysRead {
  uint2 wide[KEYS];
  u32 narrow[KEYS];

  // at: offsets in the keys.
  template <class P> BARACUDA_D void load(const P& p, const i64 (&at)[KEYS]) {
#pragma unroll
    for (int k = 0; k < KEYS; ++k) {
      const bool there = k < p.keys, is_wide = p.wide >> k & 1;
      load_wanted(wide[k], static_cast<const i64*>(p.indices[k]) + at[k], there && is_wide);
      load_wanted(narrow[k], static_cast<const i32*>(p.indices[k]) + at[k], there && !is_wide);
    }
  }
  BARACUDA_D i64 index(int k, bool is_wide) const {
    if (is_wide) return static_cast<i64>(static_cast<u64>(wide[k].y) << 32 | wide[k].x);
    return narrow[k] == 0x80000000u ? no_index : static_cast<i32>(narrow[k]);
  }
};

// Adds position × step of each key to `sum`; false where a key names nothing.
template <int KEYS, class P> BARACUDA_D bool key_offset(const P& p, const KeysRead<KEYS>& read, i64& sum) {
  bool known = true;
#pragma unroll
  for (int k = 0; k < KEYS; ++k) {
    if (k >= p.keys) break;
    const i64 index = read.index(k, p.wide >> k & 1);
    const i64 position = position_in(index, p.extents[k], static_cast<IndexMode>(p.mode));
    report_index(p.status, index, position);
    known = known && position >= 0;
    sum += position * p.steps[k];
  }
  return known;
}

// Elements of a thread, map_threads apart: of few keys several, whose keys are in flight at once.
template <int KEYS> constexpr int elements_at_once = KEYS > 2 ? 1 : 4;

// Where the elements from `first` on are in the operands, of which the last are the keys, and their keys.
template <int KEYS, int ELEMENTS, int OPERANDS, class P>
BARACUDA_D void read_keys(const P& p, i64 first, i64 (&at)[ELEMENTS][OPERANDS], KeysRead<KEYS> (&read)[ELEMENTS]) {
  i64 c[ELEMENTS];
#pragma unroll
  for (int u = 0; u < ELEMENTS; ++u) c[u] = min(first + u * map_threads, p.chunks - 1);
  map_offsets(p, c, at);
#pragma unroll
  for (int u = 0; u < ELEMENTS; ++u) {
    i64 keys[KEYS];
#pragma unroll
    for (int k = 0; k < KEYS; ++k) keys[k] = at[u][OPERANDS - KEYS + k];
    read[u].load(p, keys);
  }
}

// Words of BYTES: the keys of a thread's elements, then the words of x, then the stores.
template <int BYTES, int KEYS, class P> BARACUDA_D void index_words(const P& p) {
  using W = Word<BYTES>;
  constexpr int words = elements_at_once<KEYS>;
  const i64 first = static_cast<i64>(blockIdx.x) * (map_threads * words) + threadIdx.x;
  if (first >= p.chunks) return;
  i64 at[words][2 + KEYS];
  KeysRead<KEYS> read[words];
  read_keys(p, first, at, read);
  bool known[words];
#pragma unroll
  for (int u = 0; u < words; ++u) known[u] = key_offset(p, read[u], at[u][1]);
  W word[words];
#pragma unroll
  for (int u = 0; u < words; ++u) {
    word[u] = W{};
    if (known[u]) word[u] = load_word<Access::readonly>(static_cast<const W*>(p.x) + at[u][1]);
  }
#pragma unroll
  for (int u = 0; u < words; ++u) {
    if (first + u * map_threads >= p.chunks) break;
    store_word<Access::streaming>(static_cast<W*>(p.y) + at[u][0], word[u]);
  }
}

// y = the sum of position × step over the keys, or no_index where one of them names nothing.
template <int KEYS, class P> BARACUDA_D void index_positions(const P& p) {
  constexpr int words = elements_at_once<KEYS>;
  const i64 first = static_cast<i64>(blockIdx.x) * (map_threads * words) + threadIdx.x;
  if (first >= p.chunks) return;
  i64 at[words][1 + KEYS];
  KeysRead<KEYS> read[words];
  read_keys(p, first, at, read);
#pragma unroll
  for (int u = 0; u < words; ++u) {
    i64 sum = 0;
    const bool known = key_offset(p, read[u], sum);
    if (first + u * map_threads < p.chunks) static_cast<i64*>(p.y)[at[u][0]] = known ? sum : no_index;
  }
}

// y[k] = coordinate k of the position x, axis `p.axes` - 1 moving fastest; no_index in all of them where x names nothing.
template <class P> BARACUDA_D void index_coordinates(const P& p) {
  const i64 c[1] = {static_cast<i64>(blockIdx.x) * map_threads + threadIdx.x};
  if (c[0] >= p.chunks) return;
  i64 at[1][2];
  map_offsets(p, c, at);
  const i64 index = read_index(p.x, p.wide, at[0][1]), position = position_of(index, p.extent);
  report_index(p.status, index, position);
  u64 rest = static_cast<u64>(position);
#pragma unroll 1
  for (int k = p.axes - 1; k >= 0; --k) {
    u64 coordinate = 0;
    if (position >= 0) rest = divmod(rest, static_cast<u64>(p.extents[k]), coordinate);
    static_cast<i64*>(p.y)[at[0][0] + p.places[k]] = position < 0 ? no_index : static_cast<i64>(coordinate);
  }
}

}  // namespace baracuda
