#pragma once
// selective_numbers   the numbers of a state of the selective scan, A or complex<A>, and what is done with them. Gradients
// of complex numbers are conjugate, ∂L/∂re + i ∂L/∂im, as torch has them.
#include <baracuda/complex.cuh>
#include <baracuda/math.cuh>
#include <baracuda/vector.cuh>

namespace baracuda::selective {

constexpr int steps = 8;

template <class A, bool COMPLEX> struct NumberOf {
  using type = A;
};
template <class A> struct NumberOf<A, true> {
  using type = complex<A>;
};
template <class T, bool COMPLEX> using number_t = typename NumberOf<acc_t<T>, COMPLEX>::type;

template <class A, bool COMPLEX, class N = typename NumberOf<A, COMPLEX>::type> BARACUDA_D N number(A re, A im) {
  if constexpr (COMPLEX) return {re, im};
  else return re;
}
// The number at an offset in parts, which stand side by side.
template <class A, bool COMPLEX> BARACUDA_D typename NumberOf<A, COMPLEX>::type number_at(const void* x, i64 at) {
  const A* const p = static_cast<const A*>(x) + at;
  if constexpr (COMPLEX) return {p[0], p[1]};
  else return p[0];
}
template <class A> BARACUDA_D void put_number(void* x, i64 at, A value) { static_cast<A*>(x)[at] = value; }
template <class A> BARACUDA_D void put_number(void* x, i64 at, complex<A> value) {
  static_cast<A*>(x)[at] = value.re, static_cast<A*>(x)[at + 1] = value.im;
}

template <class A> BARACUDA_D A conjugate(A x) { return x; }
template <class A> BARACUDA_D complex<A> conjugate(complex<A> x) { return {x.re, -x.im}; }
template <class A> BARACUDA_D A scaled(A x, A by) { return x * by; }
template <class A> BARACUDA_D complex<A> scaled(complex<A> x, A by) { return {x.re * by, x.im * by}; }
// by x + y, and x y + z
template <class A> BARACUDA_D A add_scaled(A by, A x, A y) { return math::fma(by, x, y); }
template <class A> BARACUDA_D complex<A> add_scaled(A by, complex<A> x, complex<A> y) {
  return {math::fma(by, x.re, y.re), math::fma(by, x.im, y.im)};
}
template <class A> BARACUDA_D A add_product(A x, A y, A z) { return math::fma(x, y, z); }
template <class A> BARACUDA_D complex<A> add_product(complex<A> x, complex<A> y, complex<A> z) {
  return {math::fma(x.re, y.re, math::fma(-x.im, y.im, z.re)), math::fma(x.re, y.im, math::fma(x.im, y.re, z.im))};
}
template <class A> BARACUDA_D A product(A x, A y) { return x * y; }
template <class A> BARACUDA_D complex<A> product(complex<A> x, complex<A> y) {
  return {math::fma(x.re, y.re, -(x.im * y.im)), math::fma(x.re, y.im, x.im * y.re)};
}
// The real part of x y, and it added to z.
template <class A> BARACUDA_D A real_product(A x, A y) { return x * y; }
template <class A> BARACUDA_D A real_product(complex<A> x, complex<A> y) {
  return math::fma(x.re, y.re, -(x.im * y.im));
}
template <class A> BARACUDA_D A add_real_product(A x, A y, A z) { return math::fma(x, y, z); }
template <class A> BARACUDA_D A add_real_product(complex<A> x, complex<A> y, A z) {
  return math::fma(x.re, y.re, math::fma(-x.im, y.im, z));
}

// exp(x) of a decay; of 16-bit operands the approximate one of base 2, to about 2^-21.
template <class T, class A = acc_t<T>> BARACUDA_D A decay_of(A x) {
  if constexpr (is_half<T>) return math::fast_exp2(x * 1.44269504f);
  else return math::exp(x);
}
template <class T, class A> BARACUDA_D complex<A> decay_of(complex<A> x) {
  A sine, cosine;
  math::sincos(x.im, &sine, &cosine);
  const A size = decay_of<T>(x.re);
  return {size * cosine, size * sine};
}

// Eight steps of what states are written from or read by.
template <class T, bool COMPLEX> struct Inputs {
  Vec<T, steps> re;
  BARACUDA_D acc_t<T> operator[](int s) const { return to_acc(re[s]); }
};
template <class T> struct Inputs<T, true> {
  Vec<T, steps> re, im;
  BARACUDA_D complex<acc_t<T>> operator[](int s) const { return {to_acc(re[s]), to_acc(im[s])}; }
};

}  // namespace baracuda::selective
