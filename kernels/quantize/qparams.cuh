#pragma once
// qparams    the scale and the zero point of a block by the range of its numbers, with 0 in it.
//
// All in float, each operation rounded once; minima and maxima are exact, so that no order counts, and NaN wins.
#include <baracuda/quantize.cuh>
#include <baracuda/reduce.cuh>

namespace baracuda::affine {

struct Span {
  float low, high;  // low <= 0 <= high, or NaN
  static BARACUDA_D Span empty() { return {0.0f, 0.0f}; }
  static BARACUDA_D Span of(float x) { return {math::minimum(x, 0.0f), math::maximum(x, 0.0f)}; }
  static BARACUDA_D Span merge(Span a, Span b) { return {math::minimum(a.low, b.low), math::maximum(a.high, b.high)}; }
  BARACUDA_D float size() const { return math::maximum(-low, high); }
};

// (high - low) / steps, 1 where all numbers are 0; a subnormal one has few digits.
BARACUDA_D float span_scale(Span s, i32 first, i32 last) {
  const float scale = (s.high - s.low) / static_cast<float>(last - first);
  return s.high == s.low ? 1.0f : scale < numeric<float>::tiny() ? numeric<float>::tiny() : scale;
}
// The code of 0: the integer nearest to first - low / scale that there is; 0 or the end beside it where that is NaN.
BARACUDA_D i32 span_zero(Span s, float scale, i32 first, i32 last) {
  return max(first, min(last, cast<i32>(math::rint(static_cast<float>(first) - s.low / scale))));
}

}  // namespace baracuda::affine
