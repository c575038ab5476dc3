#pragma once
// identity  x, of a gate without an activation.
#include "elementwise/gradients.cuh"

namespace baracuda {

template <class T> struct Identity {
  using A = compute_t<T>;
  static BARACUDA_D A value(A x, const Coefficients<A>& = {}) { return x; }
  static BARACUDA_D A by(A x, A factor) { return x * factor; }
};
namespace gradient {
template <class T> struct Identity {
  using A = acc_t<T>;
  static BARACUDA_D A value(A dy, A, const Coefficients<A>& = {}) { return dy; }
};
}  // namespace gradient
}  // namespace baracuda
