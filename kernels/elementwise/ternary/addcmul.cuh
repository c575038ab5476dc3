#pragma once
// addcmul  a + s b c.
#include "elementwise/ternary_gradients.cuh"

namespace baracuda {
namespace ternary_kinds {

// a + s b c
template <class A> BARACUDA_D A addcmul(A a, A b, A c, A s) {
  if constexpr (is_integer<A>) return plus(a, times(times(s, b), c));
  else {
    const A product = s * b;
    if (!math::lost(product)) return math::fma(product, c, a);
    int es, eb, ec;
    const A m = math::frexp(s, &es) * math::frexp(b, &eb) * math::frexp(c, &ec);
    return scaled_sum(m, es + eb + ec, a);
  }
}
// Of complex numbers; s is real.
template <class R> BARACUDA_D complex<R> addcmul(complex<R> a, complex<R> b, complex<R> c, complex<R> s) {
  return a + (b * s.re) * c;
}

BARACUDA_TERNARY(Addcmul, addcmul(a, b, c, scale))

}  // namespace ternary_kinds

namespace ternary_partials {

template <class A> BARACUDA_D A scaled_product(A dy, A y, A s) { return math::product(dy, y, s); }
template <class R> BARACUDA_D complex<R> scaled_product(complex<R> dy, complex<R> y, complex<R> s) {
  return (dy * math::conj(y)) * s.re;
}

BARACUDA_PARTIALS(Addcmul, dy, scaled_product(dy, c, s), scaled_product(dy, b, s))

}  // namespace ternary_partials
}  // namespace baracuda
