#pragma once
// ternary_functors  the functions of three operands, and the arithmetic they share with their gradients.
#include <baracuda/complex.cuh>
#include <baracuda/map.cuh>
#include <baracuda/math.cuh>
#include "elementwise/functors.cuh"

namespace baracuda {

// More special than `plus` of functors.cuh and of reduce/sums.cuh, which are equally good where both are included.
template <class R> BARACUDA_D complex<R> plus(complex<R> a, complex<R> b) { return a + b; }

// A functor computes in `Wide`; its first operand holds elements of `First`, the others and y elements of `Element`.
namespace ternary_kinds {

#define BARACUDA_TERNARY(Name, formula)                                                                   \
  template <class T> struct Name {                                                                        \
    using Element = T;                                                                                    \
    using First = T;                                                                                      \
    using Wide = compute_t<T>;                                                                            \
    static BARACUDA_D Wide value(Wide a, Wide b, Wide c, [[maybe_unused]] Wide scale) { return formula; } \
  };

template <class A> BARACUDA_D A fused(A a, A b, A c) {
  if constexpr (is_integer<A>) return plus(times(a, b), c);
  else return math::fma(a, b, c);
}

// The difference of finite numbers may overflow; that of their quarters does not.
template <class A> BARACUDA_D A lerp(A a, A b, A t) {
  A d = b - a, back = A(1);
  if (math::isinf(d)) a *= A(0.25), b *= A(0.25), d = b - a, back = A(4);
  return back * (math::abs(t) < A(0.5) ? math::fma(t, d, a) : math::fma(-d, A(1) - t, b));
}

template <class R> BARACUDA_D complex<R> lerp(complex<R> a, complex<R> b, complex<R> t) {
  const complex<R> d = b - a;
  return math::hypot(t.re, t.im) < R(0.5) ? a + t * d : b - d * (complex<R>(R(1)) - t);
}

// m 2^e + a. Where m 2^e alone would overflow, both are taken smaller first: a may be of the other sign.
template <class A> BARACUDA_D A scaled_sum(A m, int e, A a) {
  const int down = e > 0 ? 4 : 0;
  return math::ldexp(math::ldexp(m, e - down) + math::ldexp(a, -down), down);
}

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
// a + s b / c
template <class A> BARACUDA_D A addcdiv(A a, A b, A c, A s) {
  const A quotient = b / c;
  if (!math::lost(quotient)) return math::fma(s, quotient, a);
  int es, eb, ec;
  const A m = math::frexp(s, &es) * (math::frexp(b, &eb) / math::frexp(c, &ec));
  return scaled_sum(m, es + eb - ec, a);
}

// Of complex numbers; s is real.
template <class R> BARACUDA_D complex<R> addcmul(complex<R> a, complex<R> b, complex<R> c, complex<R> s) {
  return a + (b * s.re) * c;
}
template <class R> BARACUDA_D complex<R> addcdiv(complex<R> a, complex<R> b, complex<R> c, complex<R> s) {
  return a + (b / c) * s.re;
}

BARACUDA_TERNARY(Clamp, math::minimum(math::maximum(a, b), c))
BARACUDA_TERNARY(Lerp, lerp(a, b, c))
BARACUDA_TERNARY(Fma, fused(a, b, c))
BARACUDA_TERNARY(Mac, plus(a, times(b, c)))
BARACUDA_TERNARY(Addcmul, addcmul(a, b, c, scale))
BARACUDA_TERNARY(Addcdiv, addcdiv(a, b, c, scale))

#undef BARACUDA_TERNARY

// Elements are moved as they are: the payload of a NaN stays.
template <class T> struct Where {
  using Element = T;
  using First = bool;
  using Wide = T;
  static BARACUDA_D T value(bool a, const T& b, const T& c, const T&) { return a ? b : c; }
};

}  // namespace ternary_kinds

}  // namespace baracuda
