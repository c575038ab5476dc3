#pragma once
// held       a row (all channels of a group in one sample) that a block reads once and keeps in shared memory.
//
// The sums are those of the schedule reduce, to the bit: a group of lanes takes a segment of a channel, chunks in order, the
// lanes merge as a tree (reduce_axes.cuh), segments merge as states, and the channels are the kernel's. A thread reads again
// from shared memory what it wrote there. P has the fields of `schedules/channels.py: held_params`.
#include <baracuda/reduce_axes.cuh>
#include "norm/channel.cuh"

namespace baracuda::norm {

// Makes the state of every channel c, at states[c * p.segments]. read(j, channel, chunk) loads a chunk, for several j
// before the first is used; add(lane, j, channel, chunk) adds it to K::Lane.
template <class K, class P, class Read, class Add>
BARACUDA_D void held_states(const P& p, typename K::State* states, const Read& read, const Add& add) {
  using State = typename K::State;
  const int segments = p.segments, lanes = p.segment_lanes, all = p.members * segments;
  const int lane = static_cast<int>(threadIdx.x) & (lanes - 1), units = static_cast<int>(blockDim.x) / lanes;
  // Whole warps go round as often as any of them does: states are shuffled.
#pragma unroll 1
  for (int base = 0; base < all; base += units) {
    const int unit = base + static_cast<int>(threadIdx.x) / lanes;
    const bool mine = unit < all;
    const int channel = mine ? unit / segments : 0, start = mine ? unit % segments * segment_chunks : p.chunks;
    typename K::Lane sum;
#pragma unroll
    for (int j = 0; j < lane_chunks; ++j) {
      if (start + lane + j * lanes < p.chunks) read(j, channel, start + lane + j * lanes);
    }
#pragma unroll
    for (int j = 0; j < lane_chunks; ++j) {
      if (start + lane + j * lanes < p.chunks) add(sum, j, channel, start + lane + j * lanes);
    }
    const State s = merge_lanes<K>(State(sum.state()), lanes);
    if (mine && lane == 0) states[unit] = s;
  }
  __syncthreads();
  if (segments == 1) return;
  const int merging = p.merging, sets = static_cast<int>(blockDim.x) / merging;
#pragma unroll 1
  for (int base = 0; base < p.members; base += sets) {
    const int channel = base + static_cast<int>(threadIdx.x) / merging;
    const bool mine = channel < p.members;
    const State s = merge_states<K>(states + (mine ? channel * segments : 0), mine ? segments : 0, merging);
    if (mine && (threadIdx.x & (merging - 1)) == 0) states[channel * segments] = s;  // only this set reads it
  }
  __syncthreads();
}

// Calls f(channel, chunk) for the chunks that the thread read; `begin(channel)` comes before those of a channel.
template <class P, class Begin, class F> BARACUDA_D void held_chunks(const P& p, const Begin& begin, const F& f) {
  const int lanes = p.segment_lanes, units = static_cast<int>(blockDim.x) / lanes;
  const int lane = static_cast<int>(threadIdx.x) & (lanes - 1);
#pragma unroll 1
  for (int unit = static_cast<int>(threadIdx.x) / lanes; unit < p.members * p.segments; unit += units) {
    const int channel = unit / p.segments, start = unit % p.segments * segment_chunks;
    begin(channel);
#pragma unroll
    for (int j = 0; j < lane_chunks; ++j) {
      if (start + lane + j * lanes < p.chunks) f(channel, start + lane + j * lanes);
    }
  }
}

}  // namespace baracuda::norm
