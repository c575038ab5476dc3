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
  // The sum of a segment: NaN where the largest is infinite, as what is left of the infinity itself is.
  template <class A> static BARACUDA_D A total(const A (&s)[2]) { return s[1] + (s[0] - s[0]); }
  template <class A> static BARACUDA_D A apply(A x, A, A, A, const A (&s)[2], A) {
    return math::exp(x - s[0]) / total(s);
  }
};
struct TokenLogSoftmax : TokenSoftmax {
  template <class A> static BARACUDA_D A apply(A x, A, A, A, const A (&s)[2], A) {
    return x - s[0] - math::log(total(s));
  }
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
