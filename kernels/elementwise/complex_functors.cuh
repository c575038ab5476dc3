#pragma once
// complex_functors   what the functors of complex kinds share. Those that are near relatives have a file together, with
// their gradients and the functions of complex numbers that they are made of (elementwise/complex/), and a unit includes
// the file of its kind: of_complex::F<R>::value(z) for parts R.
//
// Special values are those of C99 Annex G, as in NumPy. Where a real function would overflow or vanish although the result
// does neither, its argument is split.
#include <baracuda/complex.cuh>

namespace baracuda::math {

template <class R> constexpr R ln2 = R(0.693147180559945309417232121458);
// Beyond it exp(x) leaves the normal numbers.
template <class R> constexpr R exp_end = is_same<R, float> ? R(87) : R(708);

// The sign of NaN says nothing, and counts as positive.
template <class R> BARACUDA_D R with_sign(R x, R sign) { return isnan(sign) ? x : copysign(x, sign); }

template <class R> BARACUDA_D R abs(complex<R> z) { return hypot(z.re, z.im); }
template <class R> BARACUDA_D R angle(complex<R> z) { return atan2(z.im, z.re); }

}  // namespace baracuda::math

#define BARACUDA_COMPLEX(Name, formula)                            \
  template <class R> struct Name {                                 \
    static BARACUDA_D auto value(complex<R> z) { return formula; } \
  };
