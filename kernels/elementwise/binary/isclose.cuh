#pragma once
// isclose  whether a and b are equal but for a tolerance.
#include "elementwise/binary_functors.cuh"

namespace baracuda {

// a = b, or |a - b| <= atol + rtol |b| where that is finite; in double, whatever the element.
template <class T> struct Isclose : Relation<T, 3> {
  using A = compute_t<T>;
  static BARACUDA_D bool value(A a, A b, double rtol, double atol, bool equal_nan) {
    if (a == b) return true;
    if constexpr (!is_integer<A>) {
      if (a != a && b != b) return equal_nan;
    }
    if (rtol == 0 && atol == 0) return false;  // integers may differ that are one double
    const double x = static_cast<double>(a), y = static_cast<double>(b), error = magnitude(x - y);
    return math::isfinite(error) && error <= atol + magnitude(rtol * y);
  }
};

}  // namespace baracuda
