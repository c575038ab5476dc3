#pragma once
// flash_decoding    what both schedules of flash_decoding share: lengths and the base of weights.
#include <baracuda/reduce.cuh>

namespace baracuda {
namespace decoding {

constexpr int split_keys = 256;

BARACUDA_D float exp2_fast(float x) { return math::fast_exp2(x); }  // as accurate as exp2f, but subnormal weights are 0
BARACUDA_D double exp2_fast(double x) { return math::exp2(x); }

// Keys sequence b sees, clamped to the cache; `bad` says whether that changed it.
template <class P> BARACUDA_D i64 length_of(const P& p, i64 b, bool& bad) {
  const i64 at = b * p.lengths_stride;
  const i64 n = p.long_lengths ? static_cast<const i64*>(p.lengths)[at] : static_cast<const i32*>(p.lengths)[at];
  const i64 inside = min(p.max_len, max<i64>(0, n));
  bad = inside != n;
  return inside;
}

// What weights are taken under: the maximum scaled, and 0 while it is -inf.
template <class A> BARACUDA_D A base_of(A top, A c) { return top == -numeric<A>::infinity() ? A(0) : top * c; }

}  // namespace decoding

}  // namespace baracuda
