#pragma once
// nan_to_num  x, its NaN and infinities replaced by k.a, k.b and k.c.
#include "elementwise/gradients.cuh"

namespace baracuda {

// x, its NaN and infinities replaced.
template <class A> BARACUDA_D A finite(A x, const Coefficients<A>& k) {
  return x != x ? k.a : x == numeric<A>::infinity() ? k.b : x == -numeric<A>::infinity() ? k.c : x;
}

BARACUDA_UNARY(NanToNum, floats(x, [&](auto v) { return finite(v, k); }))

namespace gradient {

BARACUDA_GRADIENT(NanToNum, (dy * A(math::isfinite(x) ? 1 : 0)))

}  // namespace gradient
}  // namespace baracuda
