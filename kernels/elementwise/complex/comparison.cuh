#pragma once
// comparison   a = b and a ≠ b.
#include "elementwise/complex_functors.cuh"

namespace baracuda::of_complex {

template <class R> struct Eq {
  static BARACUDA_D bool value(complex<R> a, complex<R> b) { return a == b; }
};
template <class R> struct Ne {
  static BARACUDA_D bool value(complex<R> a, complex<R> b) { return a != b; }
};

}  // namespace baracuda::of_complex
