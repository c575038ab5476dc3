#pragma once
// wofz   Faddeeva's exp(-z²) erfc(-iz).
#include "elementwise/complex_gradients.cuh"
#include "elementwise/faddeeva.cuh"

namespace baracuda {
namespace of_complex {

BARACUDA_COMPLEX(Wofz, faddeeva::wofz(z))

}  // namespace of_complex

namespace gradient {

// w'(z), in double.
template <class R> BARACUDA_D Slope<R> wofz(complex<R> z) {
  const auto [m, e] = faddeeva::slope(complex<double>{z.re, z.im});
  const int k = exponent_of(m);
  const complex<double> part = math::scaled(m, -k);
  return {{static_cast<R>(part.re), static_cast<R>(part.im)}, e + k};
}

namespace of_complex {

BARACUDA_SLOPE(Wofz, wofz(z))

}  // namespace of_complex
}  // namespace gradient
}  // namespace baracuda
