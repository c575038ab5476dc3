// complex_unary   y = f(z), f one functor below, y complex, real or bool; schedule map.
#include <baracuda/map.cuh>
#include "elementwise/complex_functions.cuh"
#include "elementwise/faddeeva.cuh"

namespace baracuda::of_complex {

#define BARACUDA_COMPLEX(Name, formula)                            \
  template <class R> struct Name {                                 \
    static BARACUDA_D auto value(complex<R> z) { return formula; } \
  };

// clang-format off
BARACUDA_COMPLEX(Neg, -z)
BARACUDA_COMPLEX(Conj, math::conj(z))
BARACUDA_COMPLEX(Reciprocal, complex<R>(R(1)) / z)
BARACUDA_COMPLEX(Square, z * z)
BARACUDA_COMPLEX(Sqrt, math::sqrt(z))
BARACUDA_COMPLEX(Exp, math::exp(z))
BARACUDA_COMPLEX(Expm1, math::expm1(z))
BARACUDA_COMPLEX(Log, math::log(z))
BARACUDA_COMPLEX(Log2, math::log(z) * math::inverse_ln2<R>)
BARACUDA_COMPLEX(Log10, math::log(z) * math::inverse_ln10<R>)
BARACUDA_COMPLEX(Log1p, math::log1p(z))
BARACUDA_COMPLEX(Sin, math::sin(z))
BARACUDA_COMPLEX(Cos, math::cos(z))
BARACUDA_COMPLEX(Tan, math::tan(z))
BARACUDA_COMPLEX(Asin, math::asin(z))
BARACUDA_COMPLEX(Acos, math::acos(z))
BARACUDA_COMPLEX(Atan, math::atan(z))
BARACUDA_COMPLEX(Sinh, math::sinh(z))
BARACUDA_COMPLEX(Cosh, math::cosh(z))
BARACUDA_COMPLEX(Tanh, math::tanh(z))
BARACUDA_COMPLEX(Asinh, math::asinh(z))
BARACUDA_COMPLEX(Acosh, math::acosh(z))
BARACUDA_COMPLEX(Atanh, math::atanh(z))
BARACUDA_COMPLEX(Sigmoid, math::sigmoid(z))
BARACUDA_COMPLEX(Wofz, faddeeva::wofz(z))
BARACUDA_COMPLEX(Sgn, math::sgn(z))
BARACUDA_COMPLEX(Abs, math::abs(z))
BARACUDA_COMPLEX(Angle, math::angle(z))
BARACUDA_COMPLEX(Real, z.re)
BARACUDA_COMPLEX(Imag, z.im)
BARACUDA_COMPLEX(Isnan, math::isnan(z))
BARACUDA_COMPLEX(Isinf, math::isinf(z))
BARACUDA_COMPLEX(Isfinite, math::isfinite(z))
BARACUDA_COMPLEX(Isreal, z.im == R(0))
BARACUDA_COMPLEX(Iscomplex, z.im != R(0))
// clang-format on

#undef BARACUDA_COMPLEX

}  // namespace baracuda::of_complex

namespace baracuda {

template <template <class> class F, class T, class L> BARACUDA_D void complex_unary(const ComplexUnaryParams& p) {
  using R = part_t<T>;
  using Out = decltype(F<R>::value(T{}));
  Out* const y[1] = {static_cast<Out*>(p.y)};
  const T* const x[1] = {static_cast<const T*>(p.x)};
  map<L>(p, y, x, [](const auto& in, auto& out) {
#pragma unroll
    for (int k = 0; k < out[0].size; ++k) out[0][k] = F<R>::value(in[0][k]);
  });
}

}  // namespace baracuda
