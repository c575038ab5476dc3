#pragma once
// scan_ahead  what stands before a segment of a row, from the totals that other blocks of the launch leave.
//
// 32 segments are a group, 32 groups a span. A unit is what a block has a segment of: a row, or `across` of them side by
// side. Whoever knows the total of a segment leaves it; the last of a group leaves the group's, and the last of a span
// what is before the span after it. So what is before a segment takes three sums, of at most 31, 31 and 1 states, each
// by doubling steps (Hillis and Steele 1986), whenever the states came: merge(merge(span, groups), segments).
#include <baracuda/lookback.cuh>
#include <baracuda/scan_chunks.cuh>

namespace baracuda {

// Levels of what blocks leave: p.states_at and p.flags_at say where each begins.
enum ScanLevels { level_segments, level_groups, level_spans, level_tiles, level_carries };

// What a unit has at places 0 … of a level, `across` states a place, and a flag that says so.
template <class S> struct ScanLevel {
  S* states;
  u32* flags;
  int across;
  template <class P>
  BARACUDA_D ScanLevel(const P& p, int level, i64 unit, i64 count, int across)
      : states(static_cast<S*>(p.carries) + p.states_at[level] + unit * count * across),
        flags(static_cast<u32*>(p.flags) + p.flags_at[level] + unit * count), across(across) {}
  BARACUDA_D S& at(i64 place, int column) const { return states[place * across + column]; }

  // The calling warp: of the first `count` states from `place` on, at most 32: lane k gets the first k + 1, merged.
  template <class K> BARACUDA_D S merged(i64 place, int count, int column) const {
    return scan_lanes<K>(lane_id() < count ? at(place + lane_id(), column) : K::empty(), warp_size);
  }
  // The calling warp has written the states of `place`.
  BARACUDA_D void leave(i64 place) const {
    __syncwarp();
    if (lane_id() == 0) pass_turn(flags + place, flag_total);
  }
};

template <class K> struct ScanAhead {
  using S = typename K::State;
  ScanLevel<S> segments, groups, spans;  // of spans: what is before each but the first
  int across;

  template <class P>
  BARACUDA_D ScanAhead(const P& p, i64 unit, int across)
      : segments(p, level_segments, unit, p.segments, across),
        groups(p, level_groups, unit, div_up(p.segments, warp_size), across),
        spans(p, level_spans, unit, div_up(p.segments, warp_size * warp_size), across), across(across) {}

  // The calling warp waits for what `before` reads.
  BARACUDA_D void await(i64 segment) const {
    const i64 group = segment / warp_size, span = group / warp_size;
    await_flags(spans.flags + span, span > 0);
    await_flags(groups.flags + span * warp_size, static_cast<int>(group % warp_size));
    await_flags(segments.flags + group * warp_size, static_cast<int>(segment % warp_size));
  }
  // What is before a segment; `begin` is before the row. The calling warp, all lanes the same.
  BARACUDA_D S before(i64 segment, int column, const S& begin) const {
    const i64 group = segment / warp_size, span = group / warp_size;
    const int in_span = static_cast<int>(group % warp_size), in_group = static_cast<int>(segment % warp_size);
    S carry = span == 0 ? begin : spans.at(span, column);
    if (in_span > 0) {
      carry = K::merge(carry, shuffle(groups.template merged<K>(span * warp_size, in_span, column), in_span - 1));
    }
    if (in_group > 0) {
      carry = K::merge(carry, shuffle(segments.template merged<K>(group * warp_size, in_group, column), in_group - 1));
    }
    return carry;
  }
  // The calling warp has left the total of `segment`, after which there is another: leaves what ends with it.
  // begin(column) is before the row.
  template <class F> BARACUDA_D void leave(i64 segment, const F& begin) const {
    segments.leave(segment);
    const i64 group = segment / warp_size, span = group / warp_size;
    if (segment % warp_size != warp_size - 1) return;
    await_flags(segments.flags + group * warp_size, warp_size);
#pragma unroll 1
    for (int c = 0; c < across; ++c) {
      const S sum = segments.template merged<K>(group * warp_size, warp_size, c);
      if (lane_id() == warp_size - 1) groups.at(group, c) = sum;
    }
    groups.leave(group);
    if (group % warp_size != warp_size - 1) return;
    await_flags(groups.flags + span * warp_size, warp_size);
    await_flags(spans.flags + span, span > 0);
#pragma unroll 1
    for (int c = 0; c < across; ++c) {
      const S sum = groups.template merged<K>(span * warp_size, warp_size, c);
      const S next = K::merge(span == 0 ? begin(c) : S(spans.at(span, c)), sum);
      if (lane_id() == warp_size - 1) spans.at(span + 1, c) = next;
    }
    spans.leave(span + 1);
  }
};

// Zeroes the flags, before the launch that sets them.
template <class P> BARACUDA_D void scan_clear(const P& p) {
  const i64 i = thread_index();
  if (i < p.marks) static_cast<u32*>(p.flags)[i] = 0;
}

}  // namespace baracuda
