#pragma once
// lookback   states that blocks leave for the blocks after them, in the same launch: a flag says that one is there.
//
// A block never waits for a block of a higher number, and blocks start in the order of their numbers (as CUB's scans
// take for granted), so that whoever waits waits for a block that runs. Release and acquire of the flags, extended to
// the block by barriers, order what is left and what is read (PTX ISA, Memory Consistency Model). Flags are zero when
// the launch begins.
#include <baracuda/reduce.cuh>
#include <baracuda/turns.cuh>

namespace baracuda {

constexpr u32 flag_total = 1;  // what lies there may be read
constexpr u32 flag_carry = 2;  // of a tile: what is before the tile after it, too

// PTX ISA, Data Movement and Conversion Instructions: ld, .acquire (PTX 6.0, sm_70).
// clang-format off
BARACUDA_D u32 seen_flag(const u32* flag) {
  u32 now;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(__cvta_generic_to_global(flag)) : "memory");
  return now;
}
// clang-format on

// The calling warp waits for the first `count` flags (at most 32) to be set.
BARACUDA_D void await_flags(const u32* flags, int count) {
  const int lane = lane_id();
  if (lane < count) {
    while (seen_flag(flags + lane) == 0) {}
  }
  __syncwarp();
}

// The calling warp finds the nearest of the `count` flags before `end` (at least 1, at most 31) that says flag_carry,
// all flags after it being set: how many those are. One of the flags comes to say it without this block.
BARACUDA_D int await_carry(const u32* end, int count) {
  const int lane = lane_id();
  u32 nearer;
  do {
    const u32 seen = lane < count ? seen_flag(end - 1 - lane) : 0;
    const u32 carries = __ballot_sync(full_warp, seen == flag_carry), set = __ballot_sync(full_warp, seen != 0);
    nearer = (carries & -carries) - 1;  // without any: all, and some of those are not set
    if ((set & nearer) != nearer) nearer = full_warp;
  } while (nearer == full_warp);
  __syncwarp();
  return __popc(nearer);
}

}  // namespace baracuda
