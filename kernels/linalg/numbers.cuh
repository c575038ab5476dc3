#pragma once
// numbers    conjugates and parts of real and complex numbers alike, and products that matrix factors are made of.
#include <baracuda/complex.cuh>

namespace baracuda {

template <class R> BARACUDA_D R half(R x) { return x * R(0.5); }
template <class R> BARACUDA_D complex<R> half(complex<R> x) { return x * R(0.5); }
template <class R> BARACUDA_D R adjoint(R x) { return x; }
template <class R> BARACUDA_D complex<R> adjoint(complex<R> x) { return math::conj(x); }
template <class R> BARACUDA_D R real_part(R x) { return x; }
template <class R> BARACUDA_D complex<R> real_part(complex<R> x) { return {x.re, R(0)}; }

template <class R> BARACUDA_D R real_of(R x) { return x; }
template <class R> BARACUDA_D R real_of(complex<R> x) { return x.re; }
template <class R> BARACUDA_D R imaginary_of(R) { return R(0); }
template <class R> BARACUDA_D R imaginary_of(complex<R> x) { return x.im; }

// x / d of a real d: each part divided by itself.
template <class R> BARACUDA_D R divided(R x, R d) { return x / d; }
template <class R> BARACUDA_D complex<R> divided(complex<R> x, R d) { return {x.re / d, x.im / d}; }

// Plain products, for numbers whose products stay in the range: c a of a real c, c + a b, and c - a conj(b), each
// product added by one rounding; |x|, and a bound of it to within a root of 2.
template <class R> BARACUDA_D R times_real(R a, R c) { return c * a; }
template <class R> BARACUDA_D complex<R> times_real(complex<R> a, R c) { return {c * a.re, c * a.im}; }
template <class R> BARACUDA_D R plus_product(R c, R a, R b) { return math::fma(a, b, c); }
template <class R> BARACUDA_D complex<R> plus_product(complex<R> c, complex<R> a, complex<R> b) {
  return {math::fma(-a.im, b.im, math::fma(a.re, b.re, c.re)), math::fma(a.im, b.re, math::fma(a.re, b.im, c.im))};
}
template <class R> BARACUDA_D R minus_product(R c, R a, R b) { return math::fma(-a, b, c); }
template <class R> BARACUDA_D complex<R> minus_product(complex<R> c, complex<R> a, complex<R> b) {
  return {math::fma(-a.im, b.im, math::fma(-a.re, b.re, c.re)), math::fma(a.re, b.im, math::fma(-a.im, b.re, c.im))};
}
template <class R> BARACUDA_D R magnitude(R x) { return math::abs(x); }
template <class R> BARACUDA_D R magnitude(complex<R> x) { return math::hypot(x.re, x.im); }
template <class R> BARACUDA_D R squared(R x) { return x * x; }
template <class R> BARACUDA_D R squared(complex<R> x) { return math::fma(x.re, x.re, x.im * x.im); }
template <class R> BARACUDA_D R largest_part(R x) { return math::abs(x); }
template <class R> BARACUDA_D R largest_part(complex<R> x) { return math::maximum(math::abs(x.re), math::abs(x.im)); }

}  // namespace baracuda
