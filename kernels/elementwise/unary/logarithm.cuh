#pragma once
// logarithm  logarithms: of base e, 2 and 10, log(1 + x), and the entropy -x log(x).
#include "elementwise/gradients.cuh"
#include "elementwise/half_math.cuh"

namespace baracuda {

BARACUDA_UNARY2(Log, math::log(x), half_math::log(x))
BARACUDA_UNARY2(Log2, math::log2(x), half_math::log2(x))
BARACUDA_UNARY2(Log10, math::log10(x), half_math::log10(x))
BARACUDA_UNARY2(Log1p, math::log1p(x), half_math::log1p(x))
// clang-format off
BARACUDA_UNARY2(Entr, (x == A(0) ? A(0) : x < A(0) ? -numeric<A>::infinity() : -x * math::log(x)),
                (x == A(0) ? A(0) : x < A(0) ? -numeric<A>::infinity() : -x * half_math::log(x)))
// clang-format on

namespace gradient {

BARACUDA_GRADIENT(Log, where_defined(!(x < A(0)), dy / x))
BARACUDA_GRADIENT(Log2, where_defined(!(x < A(0)), dy / x * A(1.4426950408889634)))

// dy / (x log 10): a small dy is divided first, so that it keeps its digits, a large one last, so that nothing
// overflows.
template <class T> struct Log10 {
  using A = acc_t<T>;
  static BARACUDA_D A value(A dy, A x, const Coefficients<A>& = {}) {
    const A scale = A(0.4342944819032518), first = magnitude(dy) < A(1e-20) ? A(1) : scale;
    return where_defined(!(x < A(0)), dy * first / x * (first == A(1) ? scale : A(1)));
  }
};

BARACUDA_GRADIENT(Log1p, where_defined(!(x < A(-1)), dy / (A(1) + x)))
BARACUDA_GRADIENT(Entr, where_defined(!(x < A(0)), -dy*(A(1) + math::log(x))))

}  // namespace gradient
}  // namespace baracuda
