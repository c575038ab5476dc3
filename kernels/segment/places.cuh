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

constexpr int slot_places = 32;
enum class Segmented { offsets, starts, ends, evenly, sorted, ids };  // what p.index has; p.mode

BARACUDA_D i64 read_index(const void* p, i64 at, int wide) {
  return wide ? static_cast<const i64*>(p)[at] : static_cast<const i32*>(p)[at];
}

// The id of a token, clamped to [-1, segments]: both ends are no segment.
template <class P> BARACUDA_D i64 token_id(const P& p, i64 token) {
  const i64 id = read_index(p.index, token * p.index_step, p.index_wide);
  if (p.status != nullptr && (id < 0 || id >= p.segments)) atomicOr(p.status, 1u);
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

// Of many segments a sort by ranges of them comes first (level 1), then each range is sorted by itself (level 2): every
// token is looked at twice in each, however many ranges there are. Level 0 does without.
constexpr int fine_pitch = range_rows + 4;  // bounds of a range's segments

template <class P> BARACUDA_D i64 sorted_row(const P& p, i64 token) {
  const i64 id = token_id(p, token);
  return id < p.segments && id != p.left_out ? id : -1;
}
template <bool PLACE, class Row> BARACUDA_D void sort_part(const SegmentSort& sort, int block, const Row& row_of) {
  if constexpr (PLACE) segment_place(sort, block, row_of);
  else segment_count(sort, block, row_of);
}
template <bool PLACE, class P> BARACUDA_D void sort_ids(const P& p) {
  i32 *counts = static_cast<i32*>(p.counts), *totals = static_cast<i32*>(p.totals);
  i32* bounds = static_cast<i32*>(p.coarse_starts);
  SegmentSort sort{p.tokens, p.segments, p.ranges, p.parts, p.range_pitch, counts, totals, nullptr, nullptr, nullptr};
  int block = static_cast<int>(blockIdx.x);
  i32 begin = 0, first = 0;
  if (p.level == 0) {
    sort.starts = static_cast<i32*>(p.starts), sort.order = static_cast<i32*>(p.order);
  } else if (p.level == 1) {
    sort.num_rows = div_up(p.segments, static_cast<i64>(range_rows));
    sort.starts = bounds, sort.order = static_cast<i32*>(p.coarse);
  } else {
    const i32 range = block / p.parts;
    block = block % p.parts;
    begin = bounds[range], first = range * range_rows;
    sort.tokens = bounds[range + 1] - begin;
    sort.num_rows = min<i64>(p.segments - first, range_rows);
    sort.counts += static_cast<i64>(range) * p.parts * range_rows, sort.totals += range * p.parts;
    sort.starts = static_cast<i32*>(p.fine_starts) + static_cast<i64>(range) * fine_pitch;
    sort.order = static_cast<i32*>(p.fine) + begin;
  }
  sort_part<PLACE>(sort, block, [&](i64 i) -> i64 {
    const i64 row = sorted_row(p, p.level == 2 ? static_cast<const i32*>(p.coarse)[begin + i] : i);
    return row < 0 ? row : p.level == 1 ? row / range_rows : row - first;
  });
}
template <class P> BARACUDA_D void segment_sort_count(const P& p) { sort_ids<false>(p); }
template <class P> BARACUDA_D void segment_sort_place(const P& p) { sort_ids<true>(p); }

// After both levels: the first place of a segment, and the token at a place.
template <class P> BARACUDA_D i64 sorted_edge(const P& p, i64 segment) {
  if (p.level == 0) return static_cast<const i32*>(p.starts)[segment];
  const i32* bounds = static_cast<const i32*>(p.coarse_starts);
  const i64 range = segment / range_rows;
  if (segment == p.segments) return bounds[div_up(p.segments, static_cast<i64>(range_rows))];
  return bounds[range] + static_cast<const i32*>(p.fine_starts)[range * fine_pitch + segment % range_rows];
}
template <class P> BARACUDA_D i32 sorted_token(const P& p, i64 place) {
  const i32* bounds = static_cast<const i32*>(p.coarse_starts);
  const i64 ranges = div_up(p.segments, static_cast<i64>(range_rows));
  const i64 range = first_of(ranges, [&](i64 r) { return bounds[r + 1] > place; });
  return static_cast<const i32*>(p.coarse)[bounds[range] + static_cast<const i32*>(p.fine)[place]];
}

// ---- what tells segments ----------------------------------------------------------------------------------------------

// The first place of a segment, of the one behind the last: all tokens before it belong to others.
template <class P> BARACUDA_D i64 segment_edge(const P& p, i64 segment) {
  const Segmented mode = static_cast<Segmented>(p.mode);
  if (mode == Segmented::ids) return sorted_edge(p, segment);
  if (mode == Segmented::evenly) return segment * p.each;
  if (mode == Segmented::sorted) {
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
  if (mode == Segmented::sorted) return token_id(p, place);
  return first_of(p.segments + 1, [&](i64 segment) { return segment_edge(p, segment) > place; }) - 1;
}
// The segment of a token, or -1 for none.
template <class P> BARACUDA_D i64 token_segment(const P& p, i64 token) {
  const bool by_id = static_cast<Segmented>(p.mode) >= Segmented::sorted;
  const i64 segment = by_id ? token_id(p, token) : segment_at(p, token);
  return segment < p.segments ? segment : -1;
}

// ---- bounds, slots, owners ------------------------------------------------------------------------------------------

// A thread a bound and a slot, and a place after a sort in two levels. After one of one level the bounds are there.
template <class P> BARACUDA_D void segment_bounds(const P& p) {
  const i64 i = thread_index();
  if (i <= p.segments && (static_cast<Segmented>(p.mode) != Segmented::ids || p.level != 0)) {
    static_cast<i32*>(p.starts)[i] = static_cast<i32>(segment_edge(p, i));
  }
  if (p.level != 0 && i < sorted_edge(p, p.segments)) static_cast<i32*>(p.order)[i] = sorted_token(p, i);
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
