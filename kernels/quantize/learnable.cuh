#pragma once
// learnable  fake quantisers whose scales and zero points are learned: floats, which a block shares.
//
// A zero point counts as the integer nearest to it, halves to even, within the range. Parameters P have scales,
// zero_points, the code of the element of both, and the ends of the range.
#include "quantize/affine.cuh"
#include <baracuda/map.cuh>

namespace baracuda::affine {

template <class A, class P> BARACUDA_D A learned_zero(const P& p, A given) {
  const A first = static_cast<A>(p.low), last = static_cast<A>(p.high), zero = math::rint(given);
  return zero < first ? first : zero > last ? last : zero;
}

// The scale of an element, and the least and the largest integer that its quotient may become.
template <class A> struct Learned {
  A scale, low, high;
  template <class P> BARACUDA_D Learned(const P& p, A scale, A given) : scale(scale) {
    const A zero = learned_zero(p, given);
    low = static_cast<A>(p.low) - zero, high = static_cast<A>(p.high) - zero;
  }
  // The quotient as the integer that stands for it; NaN of it or of the zero point stays.
  BARACUDA_D A held(A v) const {
    const A r = math::rint(v);
    return !(r >= low) ? (r < low ? low : r + low) : r > high ? high : r;
  }
  BARACUDA_D bool inside(A v) const {
    const A r = math::rint(v);
    return r >= low && r <= high;
  }
};

// Those of elements `scale_at` and `zero_at` of the two arrays.
template <class A, class P> BARACUDA_D Learned<A> learned_at(const P& p, i64 scale_at, i64 zero_at) {
  const A scale = scales_at<A, 1>(p.scales, p.scale_code, scale_at)[0];
  return {p, scale, p.zero_points == nullptr ? A(0) : scales_at<A, 1>(p.zero_points, p.scale_code, zero_at)[0]};
}

// S scales and given zero points of a chunk, or of neighbouring columns. FLAT: all elements share one.
template <class A, int S> struct LearnedChunk {
  Vec<A, S> scale, zero;
  template <bool FLAT, class P, class M> BARACUDA_D static LearnedChunk read(const P& p, const M& place) {
    LearnedChunk made;
    const i64 at = FLAT ? 0 : place.at[at_scale], other = FLAT ? 0 : place.at[at_zero];
    made.scale = scales_at<A, S>(p.scales, p.scale_code, at, place.splat >> at_scale & 1);
    if (p.zero_points != nullptr) {
      made.zero = scales_at<A, S>(p.zero_points, p.scale_code, other, place.splat >> at_zero & 1);
    } else {
#pragma unroll
      for (int k = 0; k < S; ++k) made.zero[k] = A(0);
    }
    return made;
  }
};

}  // namespace baracuda::affine
