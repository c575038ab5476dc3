#pragma once
// scan_axis  what the elements of a row make one after another, along one axis; schedules/scan.py.
//
// A kind is a struct K:
//
//   element                  of the operand that fixes the chunk: V = scan_vec<element>
//   State                    what is carried: up to max_scan_state bytes, trivially copyable
//   Ins, Outs                Types<…>: the elements of inputs and outputs; `leaves`: how many inputs a leaf reads, the
//                            first; `halo`: whether some input is shifted
//   K(p, at)                 of one row, which begins at element at[n] of operand n
//   int shift(n)             element r of the scan takes element r + shift of input n: -1, 0 or 1
//   State begin()            what stands before the row's first element
//   State leaf(x, r)         element r alone; x.at<n>() is what input n has there, zero beyond the row's ends
//   static State empty()     of no elements; merging with it changes nothing
//   static State merge(a, b) of all elements of a, then all of b
//   void put(y, s, x, r)     fills y.at<n>() from the state s after element r (exclusive: before it)
//   void end(s)              takes what stands after the row's last element
//
// The order of merges. A chunk is V elements, in order. A tile is `lanes` chunks, whose totals are scanned by doubling
// steps (Hillis and Steele 1986); a segment is 32 tiles, in order. What stands before a segment is begin() and then the
// totals of segments, scanned 1024 at a time; from there its tiles follow one another. lanes and V follow from the
// row's length and element, so bits depend on the row's elements alone: not on layout, on timing, or on which of the
// kernels did it. These are
//
//   scan_rows        a group of lanes a row, or a warp a segment of one;
//   scan_block_rows  a block a row of at most scan_block_segments segments: the second read finds the row in a cache;
//   scan_carries     the totals of a row's segments become what is before each;
//   scan_neighbours  rows whose neighbours lie side by side (baracuda/scan_neighbours.cuh).
//
// Of a longer row scan_rows leaves the totals of segments first, and scans from the carries last.
#include <baracuda/scan_chunks.cuh>

namespace baracuda {

BARACUDA_D int scan_log2(int power) { return __popc(static_cast<u32>(power) - 1); }
BARACUDA_D i64 scan_block_number() { return static_cast<i64>(blockIdx.y) * gridDim.x + blockIdx.x; }

template <class T, int V> BARACUDA_D Vec<T, V> turned(const Vec<T, V>& x, bool reverse) {
  Vec<T, V> out;
#pragma unroll
  for (int k = 0; k < V; ++k) out[k] = reverse ? x[V - 1 - k] : x[k];
  return out;
}

// ---- chunks of a row in global memory -------------------------------------------------------------------------------

// Elements r + shift … of a row of operand n; `left` elements exist from r on, and beyond the row's ends are zeros. WIDE:
// one aligned access (of whole chunks where the scan is reversed), or none but the first along a stride of 0.
template <class T, int V, bool WIDE, class P>
BARACUDA_D Vec<T, V> read_scanned(const P& p, int n, const T* row, i64 r, i64 left, int shift) {
  const i64 step = p.step[n];
  Vec<T, V> x{};
  if (left <= 0) return x;
  if constexpr (WIDE) {
    if (step == 0) x = load_strided<T, V>(row, i64(0), left);
    else x = turned(load_vec<T, V, true>(row + (p.reverse ? p.cols - V - r : r), left), p.reverse);
  } else {
    x = load_strided<T, V>(row + scan_place(p, r) * step, p.reverse ? -step : step, left);
  }
  if (shift == 0) return x;
  const bool up = shift > 0;
  const i64 other = up ? r + V : r - 1;
  const T beyond = other >= 0 && other < p.cols ? row[scan_place(p, other) * step] : T{};
  Vec<T, V> out;
#pragma unroll
  for (int k = 0; k < V; ++k) {
    out[k] = up ? (k + 1 < V ? x[(k + 1) % V] : beyond) : (k > 0 ? x[(k + V - 1) % V] : beyond);
  }
  return out;
}
template <class T, int V, bool WIDE, class P>
BARACUDA_D void write_scanned(const P& p, int n, T* row, i64 r, const Vec<T, V>& x, i64 left) {
  if (left <= 0) return;
  if constexpr (WIDE) {
    store_vec<T, V, true>(row + (p.reverse ? p.cols - V - r : r), turned(x, p.reverse), left);
  } else {
    const i64 step = p.step[n];
    store_strided(row + scan_place(p, r) * step, p.reverse ? -step : step, x, left);
  }
}

// The first COUNT inputs.
template <class K, int COUNT, bool WIDE, int V, class P>
BARACUDA_D ScanChunks<V, typename K::Ins> read_chunks(const P& p, const K& kind, const ScanPlaces& at, i64 r,
                                                      i64 left) {
  ScanChunks<V, typename K::Ins> x;
  each_of<COUNT>([&](auto number) {
    constexpr int n = decltype(number)::value;
    using X = Pick<n, typename K::Ins>;
    const X* const row = static_cast<const X*>(scan_input<n>(p)) + at[scan_ins + n];
    x.template get<n>() = read_scanned<X, V, WIDE>(p, scan_ins + n, row, r, left, K::halo ? kind.shift(n) : 0);
  });
  return x;
}

// What the kind makes of the states s, to the outputs that are given.
template <class K, bool WIDE, int V, class P>
BARACUDA_D void write_chunks(const P& p, const K& kind, const ScanPlaces& at, i64 r, i64 left,
                             const typename K::State (&s)[V], ScanChunks<V, typename K::Ins>& x) {
  ScanChunks<V, typename K::Outs> y;
#pragma unroll
  for (int k = 0; k < V; ++k)
    kind.put(ScanItem<V, typename K::Outs>{y, k}, s[k], ScanItem<V, typename K::Ins>{x, k}, r + k);
  each_of<K::Outs::count>([&](auto number) {
    constexpr int n = decltype(number)::value;
    using X = Pick<n, typename K::Outs>;
    X* const row = scan_own<X>(scan_output<n>(p), at[scan_outs + n]);
    if (row != nullptr) write_scanned<X, V, WIDE>(p, scan_outs + n, row, r, y.template get<n>(), left);
  });
}

// The kind of a row. Made anew where a row begins and ends, so that what only those need is in no register in between.
template <class K, class P> BARACUDA_D K scan_row(const P& p, i64 row) {
  ScanPlaces at;
  row_offsets(p, row, at);
  return K(p, at);
}

// ---- kernels --------------------------------------------------------------------------------------------------------

// A group of lanes a row, or a warp a segment of one. TOTALS: only the segments' totals are wanted.
template <class K, bool WIDE, bool TOTALS, class P> BARACUDA_D void scan_rows(const P& p) {
  using S = typename K::State;
  static_assert(sizeof(S) <= max_scan_state, "the host sizes the workspace by max_scan_state");
  constexpr int V = scan_vec<typename K::element>, inputs = TOTALS ? K::leaves : K::Ins::count;
  const int lane = lane_id(), first = lane & (p.lanes - 1), shift = scan_log2(p.lanes);
  const i64 warp = scan_block_number() * (scan_threads / warp_size) + static_cast<int>(threadIdx.x) / warp_size;
  u64 segment;
  const i64 row =
      divmod(static_cast<u64>(warp * (warp_size >> shift) + (lane >> shift)), static_cast<u64>(p.segments), segment);
  const bool mine = row < p.rows;
  ScanPlaces at = {};
  if (mine) row_offsets(p, row, at);
  const K kind(p, at);
  S* const carries = static_cast<S*>(p.carries) + row * p.segments + segment;
  S carry = K::empty();
  if (!TOTALS && mine) carry = p.segments > 1 ? *carries : scan_row<K>(p, row).begin();
#pragma unroll 1
  for (int tile = 0; tile < scan_tiles; ++tile) {
    const i64 start = (static_cast<i64>(segment) * scan_tiles + tile) * p.lanes * V;
    if (start >= p.cols) break;
    const i64 r = start + first * V, left = mine ? p.cols - r : 0;
    auto x = read_chunks<K, inputs, WIDE, V>(p, kind, at, r, left);
    S s[V];
    scan_leaves(kind, x, r, left, s);
    const S up = scan_chunk<K>(s, p.lanes);
    if constexpr (!TOTALS) {
      scan_tile<K>(s, up, carry, p.lanes, p.exclusive);
      write_chunks<K, WIDE>(p, kind, at, r, left, s, x);
    }
    carry = K::merge(carry, tile_total(up, p.lanes));
  }
  if (!mine || first != 0) return;
  if constexpr (TOTALS) *carries = carry;
  else if (static_cast<i64>(segment) == p.segments - 1) scan_row<K>(p, row).end(carry);
}

// A block a row. Its warps take tiles in turn, first for their totals; then a lane a segment puts the totals in order.
template <class K, bool WIDE, class P> BARACUDA_D void scan_block_rows(const P& p) {
  using S = typename K::State;
  constexpr int V = scan_vec<typename K::element>, size = warp_size * V;
  __shared__ __align__(16) unsigned char scratch[scan_block_segments * scan_tiles * sizeof(S)];
  S* const carries = reinterpret_cast<S*>(scratch);  // of tiles: the total, then what is before
  const i64 row = scan_block_number();
  if (row >= p.rows) return;
  ScanPlaces at;
  row_offsets(p, row, at);
  const K kind(p, at);
  const int lane = lane_id(), warp = static_cast<int>(threadIdx.x) / warp_size;
  const int tiles = static_cast<int>(div_up(p.cols, size));
#pragma unroll 1
  for (int tile = warp; tile < tiles; tile += scan_threads / warp_size) {
    const i64 r = static_cast<i64>(tile) * size + lane * V, left = p.cols - r;
    auto x = read_chunks<K, K::leaves, WIDE, V>(p, kind, at, r, left);
    S s[V];
    scan_leaves(kind, x, r, left, s);
    const S up = scan_chunk<K>(s, warp_size);
    if (lane == warp_size - 1) carries[tile] = up;
  }
  __syncthreads();
  if (warp == 0) {
    const int begin = min(lane * scan_tiles, tiles), end = min(begin + scan_tiles, tiles);
    S total = K::empty();
#pragma unroll 4
    for (int tile = begin; tile < end; ++tile) total = K::merge(total, carries[tile]);
    const S left = shuffle(scan_lanes<K>(total, warp_size), (lane - 1) & (warp_size - 1));
    S carry = scan_row<K>(p, row).begin();
    if (lane > 0) carry = K::merge(carry, left);
#pragma unroll 4
    for (int tile = begin; tile < end; ++tile) {
      const S here = carries[tile];
      carries[tile] = carry;
      carry = K::merge(carry, here);
    }
    if (lane == static_cast<int>(p.segments) - 1) scan_row<K>(p, row).end(carry);
  }
  __syncthreads();
#pragma unroll 1
  for (int tile = warp; tile < tiles; tile += scan_threads / warp_size) {
    const i64 r = static_cast<i64>(tile) * size + lane * V, left = p.cols - r;
    auto x = read_chunks<K, K::Ins::count, WIDE, V>(p, kind, at, r, left);
    S s[V];
    scan_leaves(kind, x, r, left, s);
    const S up = scan_chunk<K>(s, warp_size);
    scan_tile<K>(s, up, S(carries[tile]), warp_size, p.exclusive);
    write_chunks<K, WIDE>(p, kind, at, r, left, s, x);
  }
}

// A block a row: the totals of its segments become what is before each.
template <class K, class P> BARACUDA_D void scan_carries(const P& p) {
  using S = typename K::State;
  __shared__ __align__(16) unsigned char scratch[warp_size * sizeof(S)];
  S* const totals = reinterpret_cast<S*>(scratch);
  const i64 row = scan_block_number();
  if (row >= p.rows) return;
  S* const carries = static_cast<S*>(p.carries) + row * p.segments;
  const int lane = lane_id(), warp = static_cast<int>(threadIdx.x) / warp_size;
  S carry = scan_row<K>(p, row).begin();
#pragma unroll 1
  for (i64 start = 0; start < p.segments; start += scan_block) {
    const i64 i = start + static_cast<int>(threadIdx.x);
    const S up = scan_lanes<K>(i < p.segments ? carries[i] : K::empty(), warp_size);
    if (lane == warp_size - 1) totals[warp] = up;
    __syncthreads();
    const S warps = scan_lanes<K>(S(totals[lane]), warp_size);
    const S left = shuffle(up, (lane - 1) & (warp_size - 1)), above = shuffle(warps, (warp - 1) & (warp_size - 1));
    S before = warp == 0 ? carry : K::merge(carry, above);
    if (lane > 0) before = K::merge(before, left);
    if (i < p.segments) carries[i] = before;
    carry = K::merge(carry, shuffle(warps, warp_size - 1));
    __syncthreads();
  }
}

}  // namespace baracuda
