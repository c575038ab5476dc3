#pragma once
// lerp  a + c (b - a).
#include "elementwise/ternary_gradients.cuh"

namespace baracuda {
namespace ternary_kinds {

// The difference of finite numbers may overflow; that of their quarters does not.
template <class A> BARACUDA_D A lerp(A a, A b, A t) {
  A d = b - a, back = A(1);
  if (math::isinf(d)) a *= A(0.25), b *= A(0.25), d = b - a, back = A(4);
  return back * (math::abs(t) < A(0.5) ? math::fma(t, d, a) : math::fma(-d, A(1) - t, b));
}
template <class R> BARACUDA_D complex<R> lerp(complex<R> a, complex<R> b, complex<R> t) {
  const complex<R> d = b - a;
  return math::hypot(t.re, t.im) < R(0.5) ? a + t * d : b - d * (complex<R>(R(1)) - t);
}

BARACUDA_TERNARY(Lerp, lerp(a, b, c))

}  // namespace ternary_kinds

namespace ternary_partials {

// dy (b - a): the difference of finite numbers may overflow, that of their quarters does not.
template <class A> BARACUDA_D A times_difference(A dy, A a, A b) {
  const A d = b - a;
  return math::isinf(d) ? dy * (b * A(0.25) - a * A(0.25)) * A(4) : dy * d;
}
template <class R> BARACUDA_D complex<R> times_difference(complex<R> dy, complex<R> a, complex<R> b) {
  return dy * math::conj(b - a);
}

BARACUDA_PARTIALS(Lerp, (dy * conjugate(A(1) - c)), (dy * conjugate(c)), times_difference(dy, a, b))

}  // namespace ternary_partials
}  // namespace baracuda
