// segment_softmax   y[t, :] = exp(x[t, :] - m) / Σ exp(x - m) over the tokens of t's segment, m the largest; log_softmax
//                   x - m - log Σ exp(x - m). And the gradients of both.
//
// What a segment needs is combined first (combine.cuh), then a pass over the tokens makes y.
#include "segment/functors.cuh"
#include "segment/tokens.cuh"

namespace baracuda {

struct TokenSoftmax {
  static constexpr int planes = 2;
  static constexpr bool x = true, z = false, g = false, h = false, counts = false;
  template <class A> static BARACUDA_D A apply(A x, A, A, A, const A (&s)[2], A) { return math::exp(x - s[0]) / s[1]; }
};
struct TokenLogSoftmax : TokenSoftmax {
  template <class A> static BARACUDA_D A apply(A x, A, A, A, const A (&s)[2], A) { return x - s[0] - math::log(s[1]); }
};
// x is dy, z is y; s the sum of their products, or of dy.
struct SlopeOfSoftmax : TokenSoftmax {
  static constexpr int planes = 1;
  static constexpr bool z = true;
  template <class A> static BARACUDA_D A apply(A x, A z, A, A, const A (&s)[1], A) { return z * (x - s[0]); }
};
struct SlopeOfLogSoftmax : SlopeOfSoftmax {
  template <class A> static BARACUDA_D A apply(A x, A z, A, A, const A (&s)[1], A) { return x - math::exp(z) * s[0]; }
};
using SumOfSoftmax = SegmentDots;
using SumOfLogSoftmax = SegmentSumKept;

}  // namespace baracuda
