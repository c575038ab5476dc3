#pragma once
// ternary_gradients  dy ∂f/∂a, dy ∂f/∂b and dy ∂f/∂c of the functions of three operands, in A = acc_t<T>.
//
// Where a product of some of the factors leaves the range, or loses its digits, all are multiplied anew as fractions and
// exponents, so that the gradient is right wherever it is a number of the type.
#include "elementwise/ternary_functors.cuh"

namespace baracuda {
namespace ternary_partials {

// x y / z
template <class A> BARACUDA_D A quotient(A x, A y, A z) {
  const A first = x / z;
  if (!math::lost(first)) return first * y;
  int ex, ey, ez;
  const A m = math::frexp(x, &ex) * math::frexp(y, &ey) / math::frexp(z, &ez);
  return math::ldexp(m, ex + ey - ez);
}
// s x y / z^2
template <class A> BARACUDA_D A over_square(A s, A x, A y, A z) {
  const A first = x / z, second = y / z, both = first * second;
  if (!math::lost(first) && !math::lost(second) && !math::lost(both)) return both * s;
  int es, ex, ey, ez;
  const A m = math::frexp(s, &es) * math::frexp(x, &ex) * math::frexp(y, &ey), n = math::frexp(z, &ez);
  return math::ldexp(m / (n * n), es + ex + ey - 2 * ez);
}
// dy (b - a): the difference of finite numbers may overflow, that of their quarters does not.
template <class A> BARACUDA_D A times_difference(A dy, A a, A b) {
  const A d = b - a;
  return math::isinf(d) ? dy * (b * A(0.25) - a * A(0.25)) * A(4) : dy * d;
}

// x y z with the conjugate of y; and of complex numbers the others, with conjugates of derivatives, s real.
template <class A> BARACUDA_D A conjugate(A x) { return x; }
template <class R> BARACUDA_D complex<R> conjugate(complex<R> z) { return math::conj(z); }
template <class A> BARACUDA_D A scaled_product(A dy, A y, A s) { return math::product(dy, y, s); }
template <class R> BARACUDA_D complex<R> scaled_product(complex<R> dy, complex<R> y, complex<R> s) {
  return (dy * math::conj(y)) * s.re;
}
template <class R> BARACUDA_D complex<R> quotient(complex<R> dy, complex<R> s, complex<R> c) {
  return (dy * s.re) / math::conj(c);
}
template <class R> BARACUDA_D complex<R> over_square(complex<R> s, complex<R> dy, complex<R> b, complex<R> c) {
  return ((dy * s.re) * math::conj(b / c)) / math::conj(c);
}
template <class R> BARACUDA_D complex<R> times_difference(complex<R> dy, complex<R> a, complex<R> b) {
  return dy * math::conj(b - a);
}

#define BARACUDA_PARTIALS(Name, of_a, of_b, of_c)                                                                   \
  template <class T> struct Name {                                                                                  \
    using Forward = ternary_kinds::Name<T>;                                                                         \
    using A = acc_t<T>;                                                                                             \
    template <int OPERAND>                                                                                          \
    static BARACUDA_D A of([[maybe_unused]] A dy, [[maybe_unused]] A a, [[maybe_unused]] A b, [[maybe_unused]] A c, \
                           [[maybe_unused]] A s) {                                                                  \
      if constexpr (OPERAND == 0) return of_a;                                                                      \
      else if constexpr (OPERAND == 1) return of_b;                                                                 \
      else return of_c;                                                                                             \
    }                                                                                                               \
  };

// clang-format off
// Between the bounds, ends included; a lower bound above the upper one has no gradient, as in PyTorch.
BARACUDA_PARTIALS(Clamp, (a >= b && a <= c ? dy : A(0)), (b < c && a < b ? dy : A(0)), (a > c || c < b ? dy : A(0)))
BARACUDA_PARTIALS(Where, A(0), (a != A(0) ? dy : A(0)), (a != A(0) ? A(0) : dy))
BARACUDA_PARTIALS(Lerp, dy * conjugate(A(1) - c), dy * conjugate(c), times_difference(dy, a, b))
BARACUDA_PARTIALS(Fma, dy * b, dy * a, dy)
BARACUDA_PARTIALS(Mac, dy, dy * c, dy * b)
BARACUDA_PARTIALS(Addcmul, dy, scaled_product(dy, c, s), scaled_product(dy, b, s))
BARACUDA_PARTIALS(Addcdiv, dy, quotient(dy, s, c), -over_square(s, dy, b, c))
// clang-format on

#undef BARACUDA_PARTIALS

}  // namespace ternary_partials

// The numbers among the operands of a call; bit 1 of `numbers` says that b is one, bit 2 that c is.
template <class A, class P> struct TernaryNumbers {
  A b, c, scale;
  bool has_b, has_c;
  BARACUDA_D explicit TernaryNumbers(const P& p)
      : b(static_cast<A>(p.b_number())), c(static_cast<A>(p.c_number())), scale(static_cast<A>(p.value())),
        has_b(p.numbers & 2), has_c(p.numbers & 4) {}

  template <class G, int OPERAND> BARACUDA_D A gradient(A dy, A a, A given_b, A given_c) const {
    return G::template of<OPERAND>(dy, a, has_b ? b : given_b, has_c ? c : given_c, scale);
  }
};

}  // namespace baracuda
