#pragma once
// pow   a^b.
#include "elementwise/complex/exponential.cuh"
#include "elementwise/complex/logarithm.cuh"

namespace baracuda::math {

// e^(w log z), 0^w being 1 for w = 0, 0 for Re w > 0, else NaN, as in NumPy.
template <class R> BARACUDA_D complex<R> pow(complex<R> z, complex<R> w) {
  if (w.re == R(0) && w.im == R(0)) return {R(1), R(0)};
  if (z.re == R(0) && z.im == R(0))
    return w.re > R(0) ? complex<R>(R(0)) : complex<R>(numeric<R>::nan(), numeric<R>::nan());
  return exp(w * log(z));
}

}  // namespace baracuda::math

namespace baracuda::of_complex {

// ∂/∂a is 0 where b is 0; ∂/∂b is 0 where a is 0 and Re b not negative.
template <class R> struct Pow {
  using C = complex<R>;
  static BARACUDA_D C value(C a, C b) { return math::pow(a, b); }
  static BARACUDA_D C da(C dy, C a, C b) {
    if (b == C(R(0))) return C(R(0));
    const C slope = math::conj(b * math::pow(a, C(b.re - R(1), b.im)));
    if (math::isfinite(slope) || !math::isfinite(dy) || !math::isfinite(b)) return dy * slope;
    const C root = math::pow(a, C((b.re - R(1)) / R(2), b.im / R(2)));  // of the power, which left the range
    return dy * math::conj(b * root) * math::conj(root);
  }
  static BARACUDA_D C db(C dy, C a, C b) {
    if (a == C(R(0)) && b.re >= R(0)) return C(R(0));
    return dy * math::conj(math::pow(a, b) * math::log(a));
  }
};

}  // namespace baracuda::of_complex
