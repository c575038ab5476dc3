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

// x / d of a real d: each part divided by itself.
template <class R> BARACUDA_D R divided(R x, R d) { return x / d; }
template <class R> BARACUDA_D complex<R> divided(complex<R> x, R d) { return {x.re / d, x.im / d}; }

// c - a conj(b), each product added by one rounding.
template <class R> BARACUDA_D R minus_product(R c, R a, R b) { return math::fma(-a, b, c); }
template <class R> BARACUDA_D complex<R> minus_product(complex<R> c, complex<R> a, complex<R> b) {
  return {math::fma(-a.im, b.im, math::fma(-a.re, b.re, c.re)), math::fma(a.re, b.im, math::fma(-a.im, b.re, c.im))};
}

}  // namespace baracuda
