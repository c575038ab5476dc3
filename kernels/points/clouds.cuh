#pragma once
// clouds   what ops on clouds of points share.
#include <baracuda/math.cuh>
#include <baracuda/positions.cuh>
#include <baracuda/reduce.cuh>

namespace baracuda {

// How many points of cloud b count.
template <class P> BARACUDA_D i64 cloud_end(const P& p, i64 b, i64 count) {
  if (p.lengths == nullptr) return count;
  return max<i64>(0, min<i64>(count, read_index(p.lengths, p.wide_lengths, b)));
}
template <class P> BARACUDA_D void put_index(const P& p, i64 at, i64 value) {
  if (p.wide) static_cast<i64*>(p.index)[at] = value;
  else static_cast<i32*>(p.index)[at] = static_cast<i32>(value);
}

}  // namespace baracuda
