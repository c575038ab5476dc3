#pragma once
// positions  what indices name: as NumPy counts, from the end of the axis where they are negative.
#include <baracuda/types.cuh>

namespace baracuda {

// The least number of an index's type names nothing, on purpose: what fills a list of positions up.
constexpr i64 no_index = -0x7fffffffffffffff - 1;

// Element `at` of an index of i64 (wide) or i32.
BARACUDA_D i64 read_index(const void* index, bool wide, i64 at) {
  if (wide) return static_cast<const i64*>(index)[at];
  const i32 narrow = static_cast<const i32*>(index)[at];
  return narrow == numeric<i32>::lowest() ? no_index : narrow;
}

// The position in [0, extent) that an index in [-extent, extent) names, or -1 for none.
BARACUDA_D i64 position_of(i64 index, i64 extent) {
  const i64 at = index < 0 ? index + extent : index;
  return static_cast<u64>(at) < static_cast<u64>(extent) ? at : -1;
}

// Tells a checked run of an index that names nothing though it should.
BARACUDA_D void report_index(u32* status, i64 index, i64 position) {
  if (status != nullptr && position < 0 && index != no_index) atomicOr(status, 1u);
}

}  // namespace baracuda
