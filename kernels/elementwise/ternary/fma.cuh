#pragma once
// fma  a b + c, rounded once, and a + b c, whose product is rounded too.
#include "elementwise/ternary_gradients.cuh"

namespace baracuda {
namespace ternary_kinds {

template <class A> BARACUDA_D A fused(A a, A b, A c) {
  if constexpr (is_integer<A>) return plus(times(a, b), c);
  else return math::fma(a, b, c);
}

BARACUDA_TERNARY(Fma, fused(a, b, c))
BARACUDA_TERNARY(Mac, plus(a, times(b, c)))

}  // namespace ternary_kinds

namespace ternary_partials {

BARACUDA_PARTIALS(Fma, (dy * b), (dy * a), dy)
BARACUDA_PARTIALS(Mac, dy, (dy * c), (dy * b))

}  // namespace ternary_partials
}  // namespace baracuda
