#pragma once
// tile_counts  how many elements the tiles before a tile have chosen, in one pass: decoupled look-back (Merrill and
// Garland 2016) over words of a count and what it counts.
//
// A word is 0 until its tile has left what it has itself, then what it and all tiles before it have. As a word says
// everything, it is read and written relaxed, and counts are integers: whoever comes first, they are the same. A look
// takes in 128 tiles, as the tiles on the way outrun one of 32: each look waits for memory once. Blocks start in the
// order of their numbers, see lookback.cuh. Words are zero when the launch begins.
#include <baracuda/reduce.cuh>

namespace baracuda {

constexpr u64 count_own = u64(1) << 62, count_up_to = u64(1) << 63, count_bits = count_own - 1;

// PTX ISA, Data Movement and Conversion Instructions: ld, st, .relaxed (PTX 6.0, sm_70).
// clang-format off
BARACUDA_D void leave_count(u64* word, u64 what) {
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" :: "l"(__cvta_generic_to_global(word)), "l"(what) : "memory");
}
BARACUDA_D u64 seen_count(const u64* word) {
  u64 now;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(now) : "l"(__cvta_generic_to_global(word)) : "memory");
  return now;
}
// clang-format on

// The count of all tiles before `tile`, which has `own`. A warp calls; every lane has the result.
BARACUDA_D i64 count_before(u64* words, i64 tile, i64 own) {
  constexpr int looks = 4;
  const int lane = lane_id();
  if (lane == 0) leave_count(words + tile, (tile == 0 ? count_up_to : count_own) | static_cast<u64>(own));
  if (tile == 0) return 0;
  u64 part = 0;
  bool done = false;
  for (i64 end = tile; !done; end -= looks * warp_size) {
    u64 word[looks];  // of look k, lane by lane, ever farther back; before the first tile there is nothing
#pragma unroll
    for (int k = 0; k < looks; ++k) {
      const i64 at = end - 1 - k * warp_size - lane;
      word[k] = at >= 0 ? seen_count(words + at) : count_up_to;
    }
#pragma unroll
    for (int k = 0; k < looks; ++k) {
      if (done) break;
      u32 last, nearer;
      while (true) {
        const u32 ends = __ballot_sync(full_warp, word[k] >= count_up_to);
        const u32 set = __ballot_sync(full_warp, word[k] != 0);
        last = ends & -ends, nearer = last - 1;  // without an end: all
        if ((set & nearer) == nearer) break;
        if (word[k] == 0) word[k] = seen_count(words + (end - 1 - k * warp_size - lane));
      }
      if ((nearer | last) >> lane & 1) part += word[k] & count_bits;
      done = last != 0;
    }
  }
  const i64 before = warp_reduce<Sum>(static_cast<i64>(part));
  if (lane == 0) leave_count(words + tile, count_up_to | static_cast<u64>(before + own));
  return before;
}

}  // namespace baracuda
