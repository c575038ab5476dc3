#pragma once
// hard  the sigmoid as three straight pieces, and x times that.
#include "elementwise/gradients.cuh"

namespace baracuda {

BARACUDA_UNARY2(Hardsigmoid, clamp(x + A(3), A(0), A(6)) / A(6), clamp(x + 3.0f, 0.0f, 6.0f) * (1.0f / 6.0f))
BARACUDA_UNARY2(Hardswish, (x * (clamp(x + A(3), A(0), A(6)) / A(6))),
                (x * (clamp(x + 3.0f, 0.0f, 6.0f) * (1.0f / 6.0f))))

template <class A> BARACUDA_D A hardswish_slope(A x) {
  return x <= A(-3) ? A(0) : x < A(3) ? math::fma(A(2), x, A(3)) / A(6) : A(1);
}

namespace gradient {

BARACUDA_GRADIENT(Hardsigmoid, (x > A(-3) && x < A(3) ? dy / A(6) : A(0)))
BARACUDA_GRADIENT(Hardswish, (dy * hardswish_slope(x)))

}  // namespace gradient
}  // namespace baracuda
