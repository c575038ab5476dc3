// segment_reduce_backward   dx[t, :] from dy of the token's segment
//
// A pass over the tokens; where it needs more of a segment than the forward left (how often its extreme occurs, its
// product without zeros), that is combined first, as the forward does (combine.cuh).
#include "segment/functors.cuh"
#include "segment/tokens.cuh"

namespace baracuda {

struct SlopeOfSum {
  static constexpr int planes = 0;
  static constexpr bool x = false, z = false, g = true, h = false, counts = false;
  template <class A, class S> static BARACUDA_D A apply(A, A, A g, A, const S&, A) { return g; }
};
struct SlopeOfMean : SlopeOfSum {
  static constexpr bool counts = true;
  template <class A, class S> static BARACUDA_D A apply(A, A, A g, A, const S&, A n) { return g / n; }
};
struct SlopeOfLogsumexp : SlopeOfSum {
  static constexpr int planes = 2;
  static constexpr bool x = true;
  template <class A, class S> static BARACUDA_D A apply(A x, A, A g, A, const S& s, A) {
    return g * (math::exp(x - s[0]) / s[1]);
  }
};
struct SlopeOfExtreme : SlopeOfSum {
  static constexpr int planes = 1;
  static constexpr bool x = true, h = true;
  template <class A, class S> static BARACUDA_D A apply(A x, A, A g, A h, const S& s, A) {
    return SegmentTies::same(x, h) ? g / s[0] : A(0);
  }
};
using SlopeOfMax = SlopeOfExtreme;
using SlopeOfMin = SlopeOfExtreme;
using NeedOfMax = SegmentTies;
using NeedOfMin = SegmentTies;
using NeedOfProd = SegmentFactors;
using NeedOfLogsumexp = SegmentExpKept;
struct SlopeOfProd : SlopeOfSum {
  static constexpr int planes = 3;
  static constexpr bool x = true;
  template <class A> static BARACUDA_D A apply(A x, A, A g, A, const A (&s)[3], A) {
    return SegmentFactors::others(g, x, s);
  }
};

}  // namespace baracuda
