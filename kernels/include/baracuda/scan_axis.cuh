#pragma once
// scan_axis  y[r] = the merge of elements 0 … r of a row (exclusive: 0 … r - 1) along one axis; schedules/scan.py.
//
// A kind is a struct K<T> over elements T, with A = acc_t<T>:
//
//   State, Result                     what is carried (up to max_scan_state bytes, trivially copyable); y's element
//   static State empty()              of no elements; merging with it changes nothing
//   static State leaf(A x, i64 r)     element r of its row
//   static State merge(State a, State b)   of all elements of a, then all of b
//   static Result value(State)
//   static constexpr bool indexed     whether State has an `index`, which goes to the second output
//
// The order of merges. A chunk is V elements, in order. A tile is `lanes` chunks, whose totals are scanned by doubling
// steps (Hillis and Steele 1986); a segment is 32 tiles, in order. Of a row of several segments a first launch leaves
// each one's total, a second scans the totals, 1024 at a time, and the third scans every segment from there. lanes and
// V follow from the row's length and element, so bits depend on the row's elements alone: not on layout, not on timing.
//
// P has the fields of `scan_params`: operands x, y, indices; the outer axes have a row each, the one inner axis is scanned.
#include <baracuda/reduce.cuh>
#include <baracuda/rows.cuh>

namespace baracuda {

constexpr int scan_threads = 256;
constexpr int scan_tiles = 32;      // of a segment
constexpr int scan_columns = 16;    // rows of a block that are neighbours in memory
constexpr int scan_block = 1024;    // threads that scan the totals of segments
constexpr int max_scan_state = 16;  // bytes; the host sizes the workspace by it
template <class T> constexpr int scan_vec = min(vec_elems<T>, 8);

BARACUDA_D int scan_log2(int power) { return __popc(static_cast<u32>(power) - 1); }

// Inclusive over aligned groups of `lanes` lanes. All 32 lanes call.
template <class K, class S> BARACUDA_D S scan_lanes(S x, int lanes) {
  const int lane = lane_id(), first = lane & (lanes - 1);
#pragma unroll 1
  for (int step = 1; step < lanes; step *= 2) {
    const S before = shuffle(x, (lane - step) & (warp_size - 1));
    if (first >= step) x = K::merge(before, x);
  }
  return x;
}

// s[k], the leaves of a group's chunks, become what is before or up to each; carry becomes what is up to the last.
template <class K, class S, int V> BARACUDA_D void scan_tile(S (&s)[V], S& carry, int lanes, bool exclusive) {
  const int lane = lane_id(), first = lane & (lanes - 1);
#pragma unroll
  for (int k = 1; k < V; ++k) s[k] = K::merge(s[k - 1], s[k]);
  const S up = scan_lanes<K>(s[V - 1], lanes);
  const S left = shuffle(up, (lane - 1) & (warp_size - 1));
  const S before = first == 0 ? carry : K::merge(carry, left);
  carry = K::merge(carry, shuffle(up, lane | (lanes - 1)));
  if (exclusive) {
#pragma unroll
    for (int k = V - 1; k > 0; --k) s[k] = K::merge(before, s[k - 1]);
    s[0] = before;
  } else {
#pragma unroll
    for (int k = 0; k < V; ++k) s[k] = K::merge(before, s[k]);
  }
}

template <class P> BARACUDA_D i64 scan_place(const P& p, i64 r) { return p.reverse ? p.cols - 1 - r : r; }

BARACUDA_D i64 scan_block_number() { return static_cast<i64>(blockIdx.y) * gridDim.x + blockIdx.x; }

template <class T, int V> BARACUDA_D Vec<T, V> turned(const Vec<T, V>& x, bool reverse) {
  Vec<T, V> out;
#pragma unroll
  for (int k = 0; k < V; ++k) out[k] = reverse ? x[V - 1 - k] : x[k];
  return out;
}

// V elements r … of a row, of which `left` exist. WIDE: one aligned access, of whole chunks where the scan is reversed.
template <class T, int V, bool WIDE, class P>
BARACUDA_D Vec<T, V> read_scanned(const P& p, const T* row, i64 r, i64 left) {
  if constexpr (WIDE) {
    if (left <= 0) return Vec<T, V>{};
    return turned(load_vec<T, V, true>(row + (p.reverse ? p.cols - V - r : r), left), p.reverse);
  } else {
    const i64 step = p.inner[0][0];
    return load_strided<T, V>(row + scan_place(p, r) * step, p.reverse ? -step : step, left);
  }
}
template <class T, int V, bool WIDE, class P>
BARACUDA_D void write_scanned(const P& p, int operand, T* row, i64 r, const Vec<T, V>& x, i64 left) {
  if (left <= 0) return;
  if constexpr (WIDE) {
    store_vec<T, V, true>(row + (p.reverse ? p.cols - V - r : r), turned(x, p.reverse), left);
  } else {
    const i64 step = p.inner[operand][0];
    store_strided(row + scan_place(p, r) * step, p.reverse ? -step : step, x, left);
  }
}

// A group of lanes a row, or a warp a segment of one. TOTALS: only the segments' totals are wanted.
template <class K, class T, bool WIDE, bool TOTALS, class P> BARACUDA_D void scan_rows(const P& p) {
  using A = acc_t<T>;
  using S = typename K::State;
  static_assert(sizeof(S) <= max_scan_state, "the host sizes the workspace by max_scan_state");
  constexpr int V = scan_vec<T>;
  const int lane = lane_id(), first = lane & (p.lanes - 1), shift = scan_log2(p.lanes);
  const i64 warp = scan_block_number() * (scan_threads / warp_size) + static_cast<int>(threadIdx.x) / warp_size;
  u64 segment;
  const i64 row =
      divmod(static_cast<u64>(warp * (warp_size >> shift) + (lane >> shift)), static_cast<u64>(p.segments), segment);
  const bool mine = row < p.rows;
  i64 at[3] = {0, 0, 0};
  if (mine) row_offsets(p, row, at);
  S* const carries = static_cast<S*>(p.carries) + row * p.segments + segment;
  S carry = K::empty();
  if (!TOTALS && mine && p.segments > 1) carry = *carries;
#pragma unroll 1
  for (int tile = 0; tile < scan_tiles; ++tile) {
    const i64 start = (static_cast<i64>(segment) * scan_tiles + tile) * p.lanes * V;
    if (start >= p.cols) break;
    const i64 r = start + first * V, left = mine ? p.cols - r : 0;
    const Vec<T, V> x = read_scanned<T, V, WIDE>(p, static_cast<const T*>(p.x) + at[0], r, left);
    S s[V];
#pragma unroll
    for (int k = 0; k < V; ++k) s[k] = k < left ? K::leaf(cast<A>(x[k]), r + k) : K::empty();
    scan_tile<K>(s, carry, p.lanes, p.exclusive);
    if constexpr (!TOTALS) {
      Vec<typename K::Result, V> y;
#pragma unroll
      for (int k = 0; k < V; ++k) y[k] = K::value(s[k]);
      write_scanned<typename K::Result, V, WIDE>(p, 1, static_cast<typename K::Result*>(p.y) + at[1], r, y, left);
      if constexpr (K::indexed) {
        Vec<i64, V> places;
#pragma unroll
        for (int k = 0; k < V; ++k) places[k] = scan_place(p, s[k].index);
        write_scanned<i64, V, WIDE>(p, 2, static_cast<i64*>(p.indices) + at[2], r, places, left);
      }
    }
  }
  if (TOTALS && mine && first == 0) *carries = carry;
}

// 16 neighbouring rows a block, through shared memory, where neighbours lie along the last kept axis.
template <class K, class T, bool TOTALS, class P> BARACUDA_D void scan_neighbours(const P& p) {
  using A = acc_t<T>;
  using S = typename K::State;
  using R = typename K::Result;
  constexpr int V = scan_vec<T>, pitch = scan_columns + 1, rows = warp_size * V;
  constexpr int rounds = scan_columns / (scan_threads / warp_size);
  constexpr bool apart = !TOTALS && !is_same<T, R>;  // else results take the place of what they were made from
  __shared__ T in[rows * pitch];
  __shared__ R own[apart ? rows * pitch : 1];
  R* const out = apart ? own : reinterpret_cast<R*>(in);
  __shared__ i64 places[!TOTALS && K::indexed ? rows * pitch : 1];
  const int thread = static_cast<int>(threadIdx.x), first = thread & (p.lanes - 1), shift = scan_log2(p.lanes);
  const int group = thread >> shift, groups = scan_threads >> shift, height = p.lanes * V;
  const i64 columns = p.outer_shape[p.outer_rank - 1];
  u64 segment, tile;
  const u64 piece = divmod(static_cast<u64>(scan_block_number()), static_cast<u64>(p.segments), segment);
  const i64 outer = divmod(piece, static_cast<u64>(p.pieces), tile), column = tile * scan_columns;
  if (outer * columns >= p.rows) return;  // the grid is rounded up
  const int width = static_cast<int>(min<i64>(columns - column, scan_columns));
  i64 at[3];
  row_offsets(p, outer * columns + column, at);
  S* const carries = static_cast<S*>(p.carries) + (outer * columns + column) * p.segments + segment;
  S carry[rounds];
#pragma unroll
  for (int k = 0; k < rounds; ++k) {
    const int c = k * groups + group;
    carry[k] = K::empty();
    if (!TOTALS && p.segments > 1 && c < width) carry[k] = carries[c * p.segments];
  }
  const int across = thread % scan_columns, down = thread / scan_columns;
#pragma unroll 1
  for (int t = 0; t < scan_tiles; ++t) {
    const i64 start = (static_cast<i64>(segment) * scan_tiles + t) * height;
    if (start >= p.cols) break;
    const int count = static_cast<int>(min<i64>(p.cols - start, height));
    const T* const x = static_cast<const T*>(p.x) + at[0] + across * p.outer[0][p.outer_rank - 1];
#pragma unroll 4
    for (int r = down; r < height; r += scan_threads / scan_columns) {
      if (r < count && across < width) in[r * pitch + across] = x[scan_place(p, start + r) * p.inner[0][0]];
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < rounds; ++k) {
      const int c = k * groups + group;
      const bool mine = c < width;
      S s[V];
#pragma unroll
      for (int v = 0; v < V; ++v) {
        const int r = first * V + v;
        s[v] = mine && r < count ? K::leaf(cast<A>(in[r * pitch + c]), start + r) : K::empty();
      }
      scan_tile<K>(s, carry[k], p.lanes, p.exclusive);
#pragma unroll
      for (int v = 0; v < V; ++v) {
        if (TOTALS || !mine) continue;
        out[(first * V + v) * pitch + c] = K::value(s[v]);
        if constexpr (!TOTALS && K::indexed) places[(first * V + v) * pitch + c] = scan_place(p, s[v].index);
      }
    }
    __syncthreads();
    if constexpr (!TOTALS) {
      R* const y = static_cast<R*>(p.y) + at[1] + across * p.outer[1][p.outer_rank - 1];
      i64* const indices = static_cast<i64*>(p.indices) + at[2] + across * p.outer[2][p.outer_rank - 1];
#pragma unroll 4
      for (int r = down; r < count; r += scan_threads / scan_columns) {
        if (across >= width) continue;
        const i64 place = scan_place(p, start + r);
        y[place * p.inner[1][0]] = out[r * pitch + across];
        if constexpr (K::indexed) indices[place * p.inner[2][0]] = places[r * pitch + across];
      }
      __syncthreads();
    }
  }
  if constexpr (TOTALS) {
#pragma unroll
    for (int k = 0; k < rounds; ++k) {
      const int c = k * groups + group;
      if (c < width && first == 0) carries[c * p.segments] = carry[k];
    }
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
  S carry = K::empty();
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
