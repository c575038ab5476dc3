#pragma once
// reduce_axes  y[kept] = finish(merge over the reduced axes of x), for any axes and strides; schedules/reduce.py.
//
// A kind is a struct K<T> over elements T, with A = acc_t<T>:
//
//   State, Result                              what is carried (up to max_state bytes, trivially copyable); y's element
//   Second                                     only with two results: z's element
//   static State empty()                       of no elements; merging with it changes nothing
//   static State merge(State a, State b)       of all elements of a, then all of b
//   static Result finish(State, const Reduced&); static Second second(State, const Reduced&)
//   TakesParameters                            where finish(State, const Reduced&, const P&) reads the page's parameters
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
// P has the fields of `reduce_params`: the operands of the source S (reduce_source.cuh), which is x or a map of several,
// then the results y and z; outer axes are kept, inner ones reduced. What a lane adds is of type S::Value.
#include <baracuda/reduce.cuh>
#include <baracuda/reduce_source.cuh>

namespace baracuda {

constexpr int reduce_warps = reduce_threads / warp_size;
constexpr int lane_chunks = segment_chunks / warp_size;  // chunks a lane adds in order

// What `finish` may ask for.
struct Reduced {
  i64 count;       // elements of a row
  i64 correction;  // taken from it in variances
};

template <class...> using void_t = void;
template <class K, class = void> constexpr bool takes_parameters = false;
template <class K> constexpr bool takes_parameters<K, void_t<typename K::TakesParameters>> = true;
template <class K, class = void> constexpr int results_of = 1;
template <class K> constexpr int results_of<K, void_t<typename K::Second>> = 2;

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

template <class T> BARACUDA_D T select_words(bool first, const T& a, const T& b) {
  Words<T> in, other;
  in.value = a, other.value = b;
#pragma unroll
  for (int k = 0; k < Words<T>::count; ++k) in.word[k] = first ? in.word[k] : other.word[k];
  return in.value;
}

// Over aligned groups of `lanes` lanes, neighbours first; every lane of the group gets the result. All 32 lanes call.
template <class K, class S> BARACUDA_D S merge_lanes(S x, int lanes) {
#pragma unroll 1
  for (int mask = 1; mask < lanes; mask *= 2) {
    const S other = shuffle_xor(x, mask);
    const bool upper = (lane_id() & mask) != 0;
    if constexpr (sizeof(S) > 24)
      x = K::merge(select_words(upper, other, x), select_words(upper, x, other));  // no branch
    else x = upper ? K::merge(other, x) : K::merge(x, other);
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

template <bool FAST> BARACUDA_D i64 reduce_divmod(i64 n, i64 by, i64& remainder) {
  using U = conditional<FAST, u32, u64>;
  U rest;
  const U quotient = divmod(static_cast<U>(n), static_cast<U>(by), rest);
  remainder = static_cast<i64>(rest);
  return static_cast<i64>(quotient);
}

// The calling lane's part of segment `segment` of a row: chunks first, first + lanes, ….
template <class K, bool WIDE, class S, class P>
BARACUDA_D typename K::State reduce_lane(const P& p, const S& row, i64 segment, int first) {
  constexpr int V = S::width, BATCH = WIDE ? S::batch : 1;
  typename K::Lane lane;
  const auto fill = K::fill();
#pragma unroll 1
  for (int j = 0; j < lane_chunks; j += BATCH) {
    const i64 chunk = segment * segment_chunks + first + j * p.lanes;
    if (chunk * V >= p.cols) break;
    if (WIDE && (chunk + (BATCH - 1) * p.lanes + 1) * V <= p.cols) {  // all loads are issued before the first is used
      typename S::template Chunk<V> x[BATCH];
      if (p.inner_rank <= 1) {
#pragma unroll
        for (int b = 0; b < BATCH; ++b) x[b] = row.template whole<V, true>(p, (chunk + b * p.lanes) * V);
      } else {
#pragma unroll
        for (int b = 0; b < BATCH; ++b) x[b] = row.template whole<V, false>(p, (chunk + b * p.lanes) * V);
      }
#pragma unroll
      for (int b = 0; b < BATCH; ++b) {
        const i64 r = (chunk + b * p.lanes) * V;
        lane.add(row.values(x[b], V, fill), V, r);
      }
      continue;
    }
#pragma unroll 1
    for (int b = 0; b < BATCH; ++b) {
      const i64 r = (chunk + b * p.lanes) * V, left = p.cols - r;
      if (left > 0) lane.add(row.values(row.template read<WIDE>(p, r, left, fill), left, fill), left, r);
    }
  }
  return lane.state();
}

BARACUDA_D i64 reduce_block() { return static_cast<i64>(blockIdx.y) * gridDim.x + blockIdx.x; }

// y's element of a state that is whole.
template <class K, class P, class State> BARACUDA_D typename K::Result finished(const P& p, const State& s) {
  const Reduced whole{p.count, p.correction};
  if constexpr (takes_parameters<K>) return K::finish(s, whole, p);
  else return K::finish(s, whole);
}
// Row `row`, whose state is whole: its results are at these places.
template <class K, class State, class P> BARACUDA_D void put_results(const P& p, const i64* at, const State& s) {
  const Reduced whole{p.count, p.correction};
  static_cast<typename K::Result*>(p.y)[at[0]] = finished<K>(p, s);
  if constexpr (results_of<K> > 1) static_cast<typename K::Second*>(p.z)[at[1]] = K::second(s, whole);
}
template <class K, class S, bool FAST, class State, class P>
BARACUDA_D void write_reduced(const P& p, i64 row, const State& s) {
  i64 at[S::operands + results_of<K>];
  kept_offsets<FAST>(p, row, at);
  put_results<K>(p, at + S::operands, s);
}

// Unit u, a group of lanes, is segment u % segments of row u / segments. Where there are several, `team` warps of a block
// take the segments of a row and merge them (team > 0), or each goes to the workspace (team = 0).
template <class K, class S, bool WIDE, class P> BARACUDA_D void reduce_rows(const P& p) {
  using State = typename K::State;
  static_assert(sizeof(State) <= max_state, "the host sizes the workspace by max_state");
  __shared__ __align__(16) unsigned char scratch[segment_chunks * sizeof(State)];
  const int warp = static_cast<int>(threadIdx.x) / warp_size, lane = lane_id(), team = p.team;
  const int first = lane & (p.lanes - 1), teams = log2_of(team);
  i64 row, segment = 0, at[S::operands + results_of<K>];
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
  State* const states = reinterpret_cast<State*>(scratch) + (warp >> teams) * p.segments;
  State s;
#pragma unroll 1
  do {
    s = mine ? reduce_lane<K, WIDE>(p, S(p, at), segment, first) : K::empty();
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
  if (team > 0 || p.segments == 1) write_reduced<K, S, WIDE>(p, row, s);
  else static_cast<State*>(p.partials)[row * p.segments + segment] = s;
}

// ---- a kept axis innermost ------------------------------------------------------------------------------------------

// Of neighbouring rows, whose results are `step` apart.
template <class R, int VEC> BARACUDA_D void store_across(R* y, i64 step, const Vec<R, VEC>& x) {
  if (step == 1 && reinterpret_cast<u64>(y) % alignof(Vec<R, VEC>) == 0) {
    store(y, x);
  } else if constexpr (sizeof(R) <= 16) {
    store_strided(y, step, x, VEC);
  } else {  // a statistic is wider than one access
#pragma unroll
    for (int k = 0; k < VEC; ++k) y[k * step] = x[k];
  }
}

// A block of lanes × (256 / lanes) threads: VEC neighbouring columns a thread, read VEC at a time, V rows on the way.
// Columns are places along the last kept axis, whose stride in x is 1. Neighbouring blocks have neighbouring columns of
// the same segment, so that blocks that run together read whole rows of memory. Lanes are merged through shared memory,
// `held` of a thread's columns at a time.
template <class K, class S, int VEC, class P> BARACUDA_D void reduce_columns(const P& p) {
  using State = typename K::State;
  constexpr int V = S::width, held = min(VEC, 4);
  __shared__ __align__(16) unsigned char scratch[(reduce_threads * held + warp_size) * sizeof(State)];
  State* const states = reinterpret_cast<State*>(scratch);
  const int lanes = p.lanes, across = reduce_threads >> log2_of(lanes);
  const int thread = static_cast<int>(threadIdx.x), place = thread & (across - 1), first = thread >> log2_of(across);
  const i64 columns = p.outer_shape[p.outer_rank - 1];
  i64 segment, tile;
  const i64 piece = reduce_divmod<true>(reduce_block(), p.tiles, tile);
  const i64 outer = reduce_divmod<true>(piece, p.segments, segment), start = tile * across * VEC;
  if (outer * columns >= p.rows) return;  // the grid is rounded up
  const i64 column = start + place * VEC;
  const bool mine = column < columns;
  i64 at[S::operands + results_of<K>] = {};
  if (mine) kept_offsets<true>(p, outer * columns + column, at);
  const S x(p, at);
  typename K::Lane lane[VEC];
  const auto fill = K::fill();
#pragma unroll 1
  for (int j = 0; mine && j < lane_chunks; ++j) {
    const i64 r = (segment * segment_chunks + j * lanes + first) * V, left = p.cols - r;
    if (left <= 0) break;
    typename S::template Chunk<VEC> v[V];
    if (left >= V && p.inner_rank <= 1) {  // all loads are issued before the first is used
#pragma unroll
      for (int k = 0; k < V; ++k) v[k] = x.template whole<VEC, true>(p, r + k);
    } else {
#pragma unroll
      for (int k = 0; k < V; ++k) {
        if (k < left) v[k] = x.template whole<VEC, false>(p, r + k);
        else v[k] = x.template beyond<VEC>(fill);
      }
    }
#pragma unroll
    for (int k = 0; k < V; ++k) keep_packed(v[k]);  // else the branches meet in a register for each element
#pragma unroll
    for (int c = 0; c < VEC; ++c) {
      Vec<typename S::Value, V> down;
#pragma unroll
      for (int k = 0; k < V; ++k) down[k] = x.value(v[k], c, k < left, fill);
      lane[c].add(down, left, r);
    }
  }
  if (lanes == 1 && p.segments == 1) {  // every thread has whole columns
    if (!mine) return;
    Vec<typename K::Result, VEC> y;
#pragma unroll
    for (int c = 0; c < VEC; ++c) y[c] = finished<K>(p, lane[c].state());
    store_across(static_cast<typename K::Result*>(p.y) + at[S::operands], p.outer[S::operands][p.outer_rank - 1], y);
    if constexpr (results_of<K> > 1) {
      Vec<typename K::Second, VEC> z;
#pragma unroll
      for (int c = 0; c < VEC; ++c) z[c] = K::second(lane[c].state(), Reduced{p.count, p.correction});
      constexpr int second = S::operands + 1;
      store_across(static_cast<typename K::Second*>(p.z) + at[second], p.outer[second][p.outer_rank - 1], z);
    }
    return;
  }
  // A thread merges up to `held` neighbouring lanes of a column by itself, so that a round is mostly one sweep. Those of
  // number n among their neighbours lie in rows `teams` apart: threads that read together are then in different banks.
  const int pitch = across * held + 1, near = min(lanes, held), teams = lanes >> log2_of(near);
  const int lie = (first & (near - 1)) * teams + (first >> log2_of(near));
#pragma unroll
  for (int round = 0; round < VEC; round += held) {
    if (round > 0) __syncthreads();
#pragma unroll
    for (int c = 0; c < held; ++c) states[lie * pitch + c * across + place] = lane[round + c].state();
    __syncthreads();
#pragma unroll 1
    for (int sweep = 0; sweep < held; sweep += near) {
      const int team = thread & (teams - 1), local = sweep * across + (thread >> log2_of(teams));
      const auto lane_state = [&](int n) { return State(states[(n * teams + team) * pitch + local]); };
      State s = lane_state(0);
      if (near > 1) s = K::merge(s, lane_state(1));
      if (near > 2) s = K::merge(s, K::merge(lane_state(2), lane_state(3)));
      s = merge_lanes<K>(s, teams);
      const i64 at_column = start + (local & (across - 1)) * VEC + round + (local >> log2_of(across));
      if (team != 0 || at_column >= columns) continue;
      const i64 row = outer * columns + at_column;
      if (p.segments == 1) write_reduced<K, S, true>(p, row, s);
      else static_cast<State*>(p.partials)[row * p.segments + segment] = s;
    }
  }
}

// ---- states of segments ---------------------------------------------------------------------------------------------

// cols states a row, at `sources`; 256 of them make one.
template <class K, class S, class P> BARACUDA_D void reduce_partials(const P& p) {
  using State = typename K::State;
  const int lane = lane_id(), first = lane & (p.lanes - 1), lanes = log2_of(p.lanes);
  const i64 warps = reduce_block() * reduce_warps + static_cast<int>(threadIdx.x) / warp_size;
  i64 segment;
  const i64 row = reduce_divmod<false>(warps * (warp_size >> lanes) + (lane >> lanes), p.segments, segment);
  const i64 start = segment * segment_chunks;
  const bool mine = row < p.rows;
  const int count = mine ? static_cast<int>(min<i64>(p.cols - start, segment_chunks)) : 0;
  const State s =
      merge_states<K>(static_cast<const State*>(p.sources) + (mine ? row * p.cols + start : 0), count, p.lanes);
  if (!mine || first != 0) return;
  if (p.segments == 1) write_reduced<K, S, false>(p, row, s);
  else static_cast<State*>(p.partials)[row * p.segments + segment] = s;
}

}  // namespace baracuda
