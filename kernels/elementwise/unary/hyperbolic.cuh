#pragma once
// hyperbolic  hyperbolic sine and cosine, and the inverse functions of the three.
#include "elementwise/exponential_slopes.cuh"

namespace baracuda {

BARACUDA_UNARY(Sinh, math::sinh(x))
BARACUDA_UNARY(Cosh, math::cosh(x))
BARACUDA_UNARY(Asinh, math::asinh(x))
BARACUDA_UNARY(Acosh, math::acosh(x))
BARACUDA_UNARY(Atanh, math::atanh(x))

// dy cosh(x) or dy sinh(x): for large |x| both are exp(|x|) / 2 up to the sign.
template <class T, class A, class F> BARACUDA_D A times_hyperbolic(A dy, A x, const F& f) {
  const A near = clamp(x, -far_exp<A>, far_exp<A>);
  return times_rest<T>(dy * f(near), magnitude(x - near), far_exp<A>, [](A v) { return math::exp(v); });
}

namespace gradient {

BARACUDA_GRADIENT(Sinh, times_hyperbolic<T>(dy, x, [](A v) { return math::cosh(v); }))
BARACUDA_GRADIENT(Cosh, times_hyperbolic<T>(dy, x, [](A v) { return math::sinh(v); }))
BARACUDA_GRADIENT(Asinh, (math::abs(x) > A(1e10) ? dy / math::abs(x) : dy / math::sqrt(math::fma(x, x, A(1)))))
BARACUDA_GRADIENT(Acosh, dy / (math::sqrt(x - A(1)) * math::sqrt(x + A(1))))
BARACUDA_GRADIENT(Atanh, where_defined(!(math::abs(x) > A(1)), dy / ((A(1) - x) * (A(1) + x))))

}  // namespace gradient
}  // namespace baracuda
