#pragma once
// isclose   whether |a - b| is small beside |b|.
#include "elementwise/complex_functors.cuh"

namespace baracuda::of_complex {

// a = b, or |a - b| <= atol + |rtol b| where that is finite; in double. A magnitude of b itself may lie beyond the range.
template <class R> struct Isclose {
  static BARACUDA_D bool value(complex<R> a, complex<R> b, double rtol, double atol, bool equal_nan) {
    if (a == b) return true;
    if (math::isnan(a) && math::isnan(b)) return equal_nan;
    const double x = b.re, y = b.im, error = math::hypot(a.re - x, a.im - y);
    return math::isfinite(error) && error <= atol + math::hypot(rtol * x, rtol * y);
  }
};

}  // namespace baracuda::of_complex
