#pragma once
// complex_gradients   what the gradients of complex kinds share: gradient::of_complex::F<R>::value(dy, z) stands beside F, in
// elementwise/complex/. By PyTorch's convention it is dy times the conjugate of f'(z).
//
// dy and the slope have any exponent: both are scaled to about 1 and the product once, at the end, so that nothing on
// the way overflows or loses digits.
#include "elementwise/complex_functors.cuh"

namespace baracuda::gradient {

// f' = m 2^e, or the inverse of that where it is the simpler number.
template <class R> struct Slope {
  complex<R> m;
  int e = 0;
  bool inverse = false;
};

template <class R> BARACUDA_D int exponent_of(complex<R> z) {
  return math::isfinite(z) ? math::exponent(math::larger_part(z)) : 0;
}
// dy conj(f'), NaN where dy is no number.
template <class R> BARACUDA_D complex<R> apply(complex<R> dy, Slope<R> slope) {
  if (!math::isfinite(dy)) return {numeric<R>::nan(), numeric<R>::nan()};
  if (slope.inverse && slope.m == complex<R>(R(0))) return dy / slope.m;
  const int a = exponent_of(dy), b = exponent_of(slope.m);
  const complex<R> d = math::scaled(dy, -a), m = math::conj(math::scaled(slope.m, -b));
  return slope.inverse ? math::scaled(d / m, a - b - slope.e) : math::scaled(d * m, a + b + slope.e);
}

template <class R> BARACUDA_D Slope<R> over(complex<R> m, int e = 0) { return {m, e, true}; }
template <class R> BARACUDA_D Slope<R> negative(Slope<R> slope) { return {-slope.m, slope.e, slope.inverse}; }

}  // namespace baracuda::gradient

// Of holomorphic functions.
#define BARACUDA_SLOPE(Name, formula)                                                                 \
  template <class R> struct Name {                                                                    \
    using Cotangent = complex<R>;                                                                     \
    static BARACUDA_D complex<R> value(complex<R> dy, complex<R> z) { return apply<R>(dy, formula); } \
  };
