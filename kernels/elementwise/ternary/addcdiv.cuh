#pragma once
// addcdiv  a + s b / c.
#include "elementwise/ternary_gradients.cuh"

namespace baracuda {
namespace ternary_kinds {

template <class A> BARACUDA_D A addcdiv(A a, A b, A c, A s) {
  const A quotient = b / c;
  if (!math::lost(quotient)) return math::fma(s, quotient, a);
  int es, eb, ec;
  const A m = math::frexp(s, &es) * (math::frexp(b, &eb) / math::frexp(c, &ec));
  return scaled_sum(m, es + eb - ec, a);
}
template <class R> BARACUDA_D complex<R> addcdiv(complex<R> a, complex<R> b, complex<R> c, complex<R> s) {
  return a + (b / c) * s.re;
}

BARACUDA_TERNARY(Addcdiv, addcdiv(a, b, c, scale))

}  // namespace ternary_kinds

namespace ternary_partials {

// x y / z
template <class A> BARACUDA_D A quotient(A x, A y, A z) {
  const A first = x / z;
  if (!math::lost(first)) return first * y;
  int ex, ey, ez;
  const A m = math::frexp(x, &ex) * math::frexp(y, &ey) / math::frexp(z, &ez);
  return math::ldexp(m, ex + ey - ez);
}
template <class R> BARACUDA_D complex<R> quotient(complex<R> dy, complex<R> s, complex<R> c) {
  return (dy * s.re) / math::conj(c);
}

// s x y / z^2
template <class A> BARACUDA_D A over_square(A s, A x, A y, A z) {
  const A first = x / z, second = y / z, both = first * second;
  if (!math::lost(first) && !math::lost(second) && !math::lost(both)) return both * s;
  int es, ex, ey, ez;
  const A m = math::frexp(s, &es) * math::frexp(x, &ex) * math::frexp(y, &ey), n = math::frexp(z, &ez);
  return math::ldexp(m / (n * n), es + ex + ey - 2 * ez);
}
template <class R> BARACUDA_D complex<R> over_square(complex<R> s, complex<R> dy, complex<R> b, complex<R> c) {
  return ((dy * s.re) * math::conj(b / c)) / math::conj(c);
}

BARACUDA_PARTIALS(Addcdiv, dy, quotient(dy, s, c), -over_square(s, dy, b, c))

}  // namespace ternary_partials
}  // namespace baracuda
