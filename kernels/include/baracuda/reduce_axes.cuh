#pragma once
// reduce_axes  y[kept] = finish(merge over the reduced axes of x), for any axes and strides; schedules/reduce.py.
//
// A kind is a struct K<T> over elements T, with A = acc_t<T>:
//
//   State, Result                              what is carried (up to max_state bytes, trivially copyable); y's element
//   static State empty()                       of no elements; merging with it changes nothing
//   static State merge(State a, State b)       of all elements of a, then all of b
//   static Result finish(State, const Reduced&)
//   static T fill()                            what a lane reads in place of elements past the end
//   struct Lane                                sums up what one lane reads:
//     add(Vec<A, V> x, i64 left, i64 index)    elements index … of the row, of which `left` exist; the others are fill()
//     State state() const
//
// `Fold` is the Lane of a kind that has `static State leaf(A)`, with leaf(fill()) like empty().
//
// The tree. A row is its n reduced elements in logical order. It is cut into chunks of V = 16 bytes of T, and into
// segments of 256 chunks. In a segment chunk c belongs to lane c % lanes, which adds its chunks in order (at most 8 of
// them); the lanes are merged neighbours first. Segments are merged as if they were elements: 256 states make one, until
// one is left. lanes follows from n and T alone, so a row's bits depend on its elements alone: not on alignment, strides,
// which axis is contiguous, the other rows, or how the segments are spread over warps and blocks.
//
// P has the fields of `reduce_params`: operand 0 is x, 1 is y; outer axes are kept, inner ones reduced.
#include <baracuda/reduce.cuh>
#include <baracuda/rows.cuh>

namespace baracuda {

constexpr int reduce_threads = 256;
constexpr int reduce_warps = reduce_threads / warp_size;
constexpr int lane_chunks = 8;                           // chunks a lane adds in order
constexpr int segment_chunks = lane_chunks * warp_size;  // also the states that make one
constexpr int max_state = 32;                            // bytes; the host sizes the workspace by it

// What `finish` may ask for.
struct Reduced {
  i64 count;       // elements of a row
  i64 correction;  // taken from it in variances
};

template <class K> struct Fold {
  typename K::State sum = K::empty();
  template <class A, int V> BARACUDA_D void add(const Vec<A, V>& x, i64, i64) {
    typename K::State s[V];
#pragma unroll
    for (int k = 0; k < V; ++k) s[k] = K::leaf(x[k]);
#pragma unroll
    for (int step = 1; step < V; step *= 2) {
#pragma unroll
      for (int k = 0; k < V; k += 2 * step) s[k] = K::merge(s[k], s[k + step]);
    }
    sum = K::merge(sum, s[0]);
  }
  BARACUDA_D typename K::State state() const { return sum; }
};

// Over aligned groups of `lanes` lanes, neighbours first; every lane of the group gets the result. All 32 lanes call.
template <class K, class S> BARACUDA_D S merge_lanes(S x, int lanes) {
#pragma unroll 1
  for (int mask = 1; mask < lanes; mask *= 2) {
    const S other = shuffle_xor(x, mask);
    x = lane_id() & mask ? K::merge(other, x) : K::merge(x, other);
  }
  return x;
}

BARACUDA_D int log2_of(int power) { return __popc(static_cast<u32>(power) - 1); }

// Of `count` states, at most 256; the calling group's lanes each take theirs.
template <class K, class S> BARACUDA_D S merge_states(const S* states, int count, int lanes) {
  const int first = lane_id() & (lanes - 1);
  S sum = K::empty();
#pragma unroll 4
  for (int j = 0; j < lane_chunks; ++j) {
    if (first + j * lanes < count) sum = K::merge(sum, states[first + j * lanes]);
  }
  return merge_lanes<K>(sum, lanes);
}

// ---- reduced axes innermost, or strides of no kind ------------------------------------------------------------------

// Element offsets in N operands, by divisions that the host prepared: linear is below 2^31, offsets may be beyond.
template <int N>
BARACUDA_D void narrow_offsets(u32 linear, int rank, const u32 (*by)[3], const i64 (*strides)[max_axes],
                               i64 (&out)[N]) {
#pragma unroll
  for (int n = 0; n < N; ++n) out[n] = 0;
#pragma unroll 1
  for (int axis = rank - 1; axis > 0; --axis) {
    u32 coordinate;
    linear = DivMod{by[axis][0], by[axis][1], by[axis][2]}.divmod(linear, coordinate);
#pragma unroll
    for (int n = 0; n < N; ++n) out[n] += coordinate * strides[n][axis];
  }
#pragma unroll
  for (int n = 0; n < N; ++n) out[n] += linear * strides[n][0];  // without axes the stride is 0
}

// FAST kernels: rows times segments, and the reduced elements where they lie along several axes, are below 2^31; so
// there is no 64-bit division in them, which is a call.
template <bool FAST, class P> BARACUDA_D i64 reduced_offset(const P& p, i64 r) {
  if (p.inner_rank <= 1) return r * p.inner[0][0];
  if constexpr (!FAST) return offset<i64>(r, p.inner_rank, p.inner_shape, p.inner[0]);
  i64 at[1];
  narrow_offsets<1>(static_cast<u32>(r), p.inner_rank, p.inner_dividers, p.inner, at);
  return at[0];
}
template <bool FAST, class P> BARACUDA_D void kept_offsets(const P& p, i64 row, i64 (&at)[2]) {
  if constexpr (FAST) narrow_offsets<2>(static_cast<u32>(row), p.outer_rank, p.outer_dividers, p.outer, at);
  else row_offsets(p, row, at);
}
template <bool FAST> BARACUDA_D i64 reduce_divmod(i64 n, i64 by, i64& remainder) {
  using U = conditional<FAST, u32, u64>;
  U rest;
  const U quotient = divmod(static_cast<U>(n), static_cast<U>(by), rest);
  remainder = static_cast<i64>(rest);
  return static_cast<i64>(quotient);
}

// Elements r … of a row. WIDE: a whole chunk is 16 aligned bytes.
template <class T, bool WIDE, class P>
BARACUDA_D Vec<T, vec_elems<T>> read_reduced(const P& p, const T* row, i64 r, i64 left, T fill) {
  constexpr int V = vec_elems<T>;
  if constexpr (WIDE) {
    return load_vec<T, V, true>(row + (left > 0 ? reduced_offset<true>(p, r) : 0), left, fill);
  } else {
    if (p.inner_rank <= 1) return load_strided<T, V>(row + r * p.inner[0][0], p.inner[0][0], left, fill);
    Vec<T, V> out;
#pragma unroll 1
    for (int k = 0; k < V; ++k) out[k] = k < left ? row[reduced_offset<false>(p, r + k)] : fill;
    return out;
  }
}

// The calling lane's part of segment `segment` of a row: chunks first, first + lanes, ….
template <class K, class T, bool WIDE, class P>
BARACUDA_D typename K::State reduce_lane(const P& p, const T* row, i64 segment, int first) {
  using A = acc_t<T>;
  constexpr int V = vec_elems<T>, BATCH = WIDE ? (sizeof(T) > 1 ? 4 : 2) : 1;  // 16-byte loads on the way
  typename K::Lane lane;
  const T fill = K::fill();
#pragma unroll 1
  for (int j = 0; j < lane_chunks; j += BATCH) {
    const i64 chunk = segment * segment_chunks + first + j * p.lanes;
    if (chunk * V >= p.cols) break;
    Vec<T, V> x[BATCH];
#pragma unroll
    for (int b = 0; b < BATCH; ++b) {
      const i64 r = (chunk + b * p.lanes) * V;
      x[b] = read_reduced<T, WIDE>(p, row, r, p.cols - r, fill);
    }
#pragma unroll
    for (int b = 0; b < BATCH; ++b) {
      const i64 r = (chunk + b * p.lanes) * V;
      if (r < p.cols) lane.add(cast_vec<A>(x[b]), p.cols - r, r);
    }
  }
  return lane.state();
}

BARACUDA_D i64 reduce_block() { return static_cast<i64>(blockIdx.y) * gridDim.x + blockIdx.x; }

// Row `row`, whose state is whole.
template <class K, bool FAST, class S, class P> BARACUDA_D void write_reduced(const P& p, i64 row, const S& s) {
  i64 at[2];
  kept_offsets<FAST>(p, row, at);
  static_cast<typename K::Result*>(p.y)[at[1]] = K::finish(s, Reduced{p.count, p.correction});
}

// Unit u, a group of lanes, is segment u % segments of row u / segments. Where there are several, `team` warps of a block
// take the segments of a row and merge them (team > 0), or each goes to the workspace (team = 0).
template <class K, class T, bool WIDE, class P> BARACUDA_D void reduce_rows(const P& p) {
  using S = typename K::State;
  static_assert(sizeof(S) <= max_state, "the host sizes the workspace by max_state");
  __shared__ __align__(16) unsigned char scratch[segment_chunks * sizeof(S)];
  const int warp = static_cast<int>(threadIdx.x) / warp_size, lane = lane_id(), team = p.team;
  const int first = lane & (p.lanes - 1), teams = log2_of(team);
  i64 row, segment = 0, at[2];
  if (team > 0) {
    row = reduce_block() * (reduce_warps >> teams) + (warp >> teams);
    segment = warp & (team - 1);
  } else {
    const int lanes = log2_of(p.lanes);
    row = reduce_divmod<WIDE>((reduce_block() * reduce_warps + warp) * (warp_size >> lanes) + (lane >> lanes),
                              p.segments, segment);
  }
  const bool mine = row < p.rows;
  if (mine) kept_offsets<WIDE>(p, row, at);
  S* const states = reinterpret_cast<S*>(scratch) + (warp >> teams) * p.segments;
  S s;
#pragma unroll 1
  do {
    s = mine ? reduce_lane<K, T, WIDE>(p, static_cast<const T*>(p.x) + at[0], segment, first) : K::empty();
    s = merge_lanes<K>(s, p.lanes);
    if (team == 0) break;
    if (lane == 0 && mine && segment < p.segments) states[segment] = s;
    segment += team;
  } while (segment < p.segments);
  if (team > 0) {
    __syncthreads();
    if ((warp & (team - 1)) != 0) return;
    s = merge_states<K>(states, static_cast<int>(p.segments), p.merging);
  }
  if (!mine || first != 0) return;
  if (team > 0 || p.segments == 1) write_reduced<K, WIDE>(p, row, s);
  else static_cast<S*>(p.partials)[row * p.segments + segment] = s;
}

// ---- a kept axis innermost ------------------------------------------------------------------------------------------

// A block of lanes × (256 / lanes) threads: VEC neighbouring columns a thread, read VEC at a time, V rows on the way.
// Columns are places along the last kept axis, whose stride in x is 1.
template <class K, class T, int VEC, class P> BARACUDA_D void reduce_columns(const P& p) {
  using A = acc_t<T>;
  using S = typename K::State;
  using R = typename K::Result;
  constexpr int V = vec_elems<T>;
  __shared__ __align__(16) unsigned char scratch[(reduce_threads * VEC + warp_size) * sizeof(S)];
  S* const states = reinterpret_cast<S*>(scratch);
  const int lanes = p.lanes, across = reduce_threads >> log2_of(lanes);
  const int thread = static_cast<int>(threadIdx.x), place = thread & (across - 1), first = thread >> log2_of(across);
  const i64 columns = p.outer_shape[p.outer_rank - 1];
  i64 segment, tile;
  const i64 piece = reduce_divmod<true>(reduce_block(), p.segments, segment);
  const i64 outer = reduce_divmod<true>(piece, p.tiles, tile), start = tile * across * VEC;
  if (outer * columns >= p.rows) return;  // the grid is rounded up
  const i64 column = start + place * VEC;
  const bool mine = column < columns;
  i64 at[2] = {0, 0};
  if (mine) kept_offsets<true>(p, outer * columns + column, at);
  const T* const x = static_cast<const T*>(p.x) + at[0];
  typename K::Lane lane[VEC];
  const T fill = K::fill();
#pragma unroll 1
  for (int j = 0; mine && j < lane_chunks; ++j) {
    const i64 r = (segment * segment_chunks + j * lanes + first) * V, left = p.cols - r;
    if (left <= 0) break;
    Vec<T, VEC> v[V];
#pragma unroll
    for (int k = 0; k < V; ++k) {
      if (k < left) {
        v[k] = load<VEC>(x + reduced_offset<true>(p, r + k));
      } else {
#pragma unroll
        for (int c = 0; c < VEC; ++c) v[k][c] = fill;
      }
    }
#pragma unroll
    for (int c = 0; c < VEC; ++c) {
      Vec<A, V> down;
#pragma unroll
      for (int k = 0; k < V; ++k) down[k] = cast<A>(v[k][c]);
      lane[c].add(down, left, r);
    }
  }
  if (lanes == 1 && p.segments == 1) {  // every thread has whole columns
    if (!mine) return;
    const i64 step = p.outer[1][p.outer_rank - 1];
    R* const y = static_cast<R*>(p.y) + at[1];
    Vec<R, VEC> out;
#pragma unroll
    for (int c = 0; c < VEC; ++c) out[c] = K::finish(lane[c].state(), Reduced{p.count, p.correction});
    if (step == 1 && reinterpret_cast<u64>(y) % alignof(Vec<R, VEC>) == 0) store(y, out);
    else store_strided(y, step, out, VEC);
    return;
  }
  const int pitch = across * VEC + 1;
#pragma unroll
  for (int c = 0; c < VEC; ++c) states[first * pitch + place * VEC + c] = lane[c].state();
  __syncthreads();
#pragma unroll 1
  for (int sweep = 0; sweep < VEC; ++sweep) {
    const int local = sweep * across + (thread >> log2_of(lanes)), from = thread & (lanes - 1);
    const S s = merge_lanes<K>(S(states[from * pitch + local]), lanes);
    if (from != 0 || start + local >= columns) continue;
    const i64 row = outer * columns + start + local;
    if (p.segments == 1) write_reduced<K, true>(p, row, s);
    else static_cast<S*>(p.partials)[row * p.segments + segment] = s;
  }
}

// ---- states of segments ---------------------------------------------------------------------------------------------

// cols states a row, at `sources`; 256 of them make one.
template <class K, class P> BARACUDA_D void reduce_partials(const P& p) {
  using S = typename K::State;
  const int lane = lane_id(), first = lane & (p.lanes - 1), lanes = log2_of(p.lanes);
  const i64 warps = reduce_block() * reduce_warps + static_cast<int>(threadIdx.x) / warp_size;
  i64 segment;
  const i64 row = reduce_divmod<false>(warps * (warp_size >> lanes) + (lane >> lanes), p.segments, segment);
  const i64 start = segment * segment_chunks;
  const bool mine = row < p.rows;
  const int count = mine ? static_cast<int>(min<i64>(p.cols - start, segment_chunks)) : 0;
  const S s = merge_states<K>(static_cast<const S*>(p.sources) + (mine ? row * p.cols + start : 0), count, p.lanes);
  if (!mine || first != 0) return;
  if (p.segments == 1) write_reduced<K, false>(p, row, s);
  else static_cast<S*>(p.partials)[row * p.segments + segment] = s;
}

}  // namespace baracuda
