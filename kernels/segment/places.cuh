#pragma once
// places     which tokens make up which segment: bounds of segments, a stable sort of ids, the segment of a token.
//
// A *segment* is a list of tokens that are combined. Places are positions in the list of all tokens, segment by segment:
// the tokens themselves where segments lie one after the other, `order` where their ids had to be sorted. In the workspace
// `starts` has the first place of every segment, and the place behind the last. Places are cut into *slots* of 32, of
// which `first` and `last` name the segments that hold the first and the last place; -1 where none does.
// P has the fields of `schedules/segments.py: segment_params`.
#include <baracuda/index.cuh>
#include <baracuda/segments.cuh>

namespace baracuda {

// p.mode says what p.index has, a `Segmented` of the schedule; `keys` are those of `segment_keys`, sorted.

BARACUDA_D i64 read_index(const void* p, i64 at, int wide) {
  return wide ? static_cast<const i64*>(p)[at] : static_cast<const i32*>(p)[at];
}

// The id of a token, clamped to [-1, segments]: both ends are no segment. A checked run is told of an id that lies outside,
// unless it is the one that is left out (below -1 for none), or others' ids are there on purpose.
template <class P> BARACUDA_D i64 token_id(const P& p, i64 token) {
  const i64 id = read_index(p.index, token * p.index_step, p.index_wide);
  const bool given = static_cast<Segmented>(p.mode) != Segmented::keys;
  const bool meant = p.others || (id == p.left_out && p.left_out >= -1);
  if (given && p.status != nullptr && (id < 0 || id >= p.segments) && !meant) atomicOr(p.status, 1u);
  return max<i64>(-1, min<i64>(id, p.segments));
}

// The first of n numbers for which `passes` holds, which it does for all after it; n where it never does.
template <class F> BARACUDA_D i64 first_of(i64 n, const F& passes) {
  i64 low = 0, high = n;
  while (low < high) {
    const i64 middle = (low + high) / 2;
    if (passes(middle)) high = middle;
    else low = middle + 1;
  }
  return low;
}

// ---- the sort of ids ------------------------------------------------------------------------------------------------

// The id that a token is sorted by; -1 for none.
template <class P> BARACUDA_D i64 sorted_row(const P& p, i64 token) {
  const i64 id = token_id(p, token);
  return id < p.segments && id != p.left_out ? id : -1;
}

// Few tokens, or few segments: a counting sort, which makes `starts` as well.
template <class P> BARACUDA_D SegmentSort segment_sort(const P& p) {
  return {p.tokens,
          p.segments,
          p.ranges,
          p.parts,
          p.range_pitch,
          static_cast<i32*>(p.counts),
          static_cast<i32*>(p.totals),
          static_cast<i32*>(p.starts),
          static_cast<i32*>(p.order),
          nullptr};
}
template <class P> BARACUDA_D void segment_sort_count(const P& p) {
  segment_count(segment_sort(p), static_cast<int>(blockIdx.x), [&](i64 token) { return sorted_row(p, token); });
}
template <class P> BARACUDA_D void segment_sort_place(const P& p) {
  segment_place(segment_sort(p), static_cast<int>(blockIdx.x), [&](i64 token) { return sorted_row(p, token); });
}

// Otherwise a radix sort of these keys: tokens of no segment come last.
template <class P> BARACUDA_D void segment_keys(const P& p) {
  const i64 token = thread_index();
  if (token >= p.tokens) return;
  const i64 row = sorted_row(p, token);
  static_cast<i32*>(p.keys)[token] = static_cast<i32>(row < 0 ? p.segments : row);
}

// ---- what tells segments ----------------------------------------------------------------------------------------------

// The first place of a segment, of the one behind the last: all tokens before it belong to others.
template <class P> BARACUDA_D i64 segment_edge(const P& p, i64 segment) {
  const Segmented mode = static_cast<Segmented>(p.mode);
  if (mode == Segmented::ids) return static_cast<const i32*>(p.starts)[segment];
  if (mode == Segmented::evenly) return segment * p.each;
  if (mode == Segmented::sorted || mode == Segmented::keys) {
    return first_of(p.tokens, [&](i64 token) { return token_id(p, token) >= segment; });
  }
  if (mode == Segmented::starts && segment == p.segments) return p.tokens;
  if (mode == Segmented::ends && segment-- == 0) return 0;
  const i64 edge = read_index(p.index, segment * p.index_step, p.index_wide);
  return max<i64>(0, min<i64>(edge, p.tokens));
}
// The segment that holds a place; -1 before the first, and the number of segments behind the last.
template <class P> BARACUDA_D i64 segment_at(const P& p, i64 place) {
  const Segmented mode = static_cast<Segmented>(p.mode);
  if (mode == Segmented::evenly) return place / max<i64>(p.each, 1);
  if (mode == Segmented::sorted || mode == Segmented::keys) return token_id(p, place);
  return first_of(p.segments + 1, [&](i64 segment) { return segment_edge(p, segment) > place; }) - 1;
}
// The segment of a token, or -1 for none.
template <class P> BARACUDA_D i64 token_segment(const P& p, i64 token) {
  const bool by_id = static_cast<Segmented>(p.mode) >= Segmented::sorted;
  const i64 segment = by_id ? token_id(p, token) : segment_at(p, token);
  return segment < p.segments ? segment : -1;
}

// ---- bounds, slots, owners ------------------------------------------------------------------------------------------

// A thread a bound and a slot. After a counting sort the bounds are there.
template <class P> BARACUDA_D void segment_bounds(const P& p) {
  const i64 i = thread_index();
  if (i <= p.segments && static_cast<Segmented>(p.mode) != Segmented::ids) {
    static_cast<i32*>(p.starts)[i] = static_cast<i32>(segment_edge(p, i));
  }
  if (i >= p.slots) return;
  const i64 low = i * slot_places;
  i64 high = min<i64>(low + slot_places, p.tokens), last = segment_at(p, high - 1);
  if (last >= p.segments) {
    high = min<i64>(high, segment_edge(p, p.segments));
    last = high > low ? segment_at(p, high - 1) : -1;
  }
  const i64 first = last < 0 ? -1 : segment_at(p, low);
  static_cast<i32*>(p.first)[i] = static_cast<i32>(min<i64>(first, p.segments - 1));
  static_cast<i32*>(p.last)[i] = static_cast<i32>(min<i64>(last, p.segments - 1));
}

// The segment of every token.
template <class P> BARACUDA_D void segment_owners(const P& p) {
  const i64 token = thread_index();
  if (token < p.tokens) static_cast<i32*>(p.owners)[token] = static_cast<i32>(token_segment(p, token));
}

}  // namespace baracuda
