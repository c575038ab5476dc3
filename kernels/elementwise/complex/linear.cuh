#pragma once
// linear   -z, the conjugate and the parts of z.
#include "elementwise/complex_functors.cuh"

namespace baracuda {
namespace of_complex {

BARACUDA_COMPLEX(Neg, -z)
BARACUDA_COMPLEX(Conj, math::conj(z))
BARACUDA_COMPLEX(Real, z.re)
BARACUDA_COMPLEX(Imag, z.im)

}  // namespace of_complex

namespace gradient {

namespace of_complex {

template <class R> struct Neg {
  using Cotangent = complex<R>;
  static BARACUDA_D complex<R> value(complex<R> dy, complex<R>) { return -dy; }
};
template <class R> struct Conj {
  using Cotangent = complex<R>;
  static BARACUDA_D complex<R> value(complex<R> dy, complex<R>) { return math::conj(dy); }
};

template <class R> struct Real {
  using Cotangent = R;
  static BARACUDA_D complex<R> value(R dy, complex<R>) { return {dy, R(0)}; }
};
template <class R> struct Imag {
  using Cotangent = R;
  static BARACUDA_D complex<R> value(R dy, complex<R>) { return {R(0), dy}; }
};

}  // namespace of_complex
}  // namespace gradient
}  // namespace baracuda
