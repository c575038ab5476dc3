#pragma once
// binary_gradients  what the gradients of binary kinds share: partial::F<T>::da(dy, a, b) = dy ∂f/∂a and db(dy, a, b) =
// dy ∂f/∂b stand beside F, in elementwise/binary/.
//
// Products of several factors are taken where none of them can overflow or vanish on the way: those of float and of
// 16-bit floats in double, those of double as mantissas and exponents. Kinks are PyTorch's.
#include "elementwise/binary_functors.cuh"

namespace baracuda {
namespace partial {

// m 2^e, with m between 1/2 and 1 when made; a few products and quotients leave it near.
struct Scaled {
  double m;
  int e;
  Scaled() = default;
  BARACUDA_D Scaled(double x) { m = ::frexp(x, &e); }
  BARACUDA_D Scaled(double mantissa, int exponent) : m(mantissa), e(exponent) {}
  BARACUDA_D Scaled operator-() const { return {-m, e}; }
  friend BARACUDA_D Scaled operator*(const Scaled& x, const Scaled& y) { return {x.m * y.m, x.e + y.e}; }
  friend BARACUDA_D Scaled operator/(const Scaled& x, const Scaled& y) { return {x.m / y.m, x.e - y.e}; }
};

template <class T> using Wide = conditional<is_same<T, double>, Scaled, double>;

template <class A> BARACUDA_D A narrow(double x) { return static_cast<A>(x); }
template <class A> BARACUDA_D A narrow(const Scaled& x) { return math::ldexp(x.m, x.e); }

// A is the type of operands and results, W that of products on the way.
#define BARACUDA_PARTIAL(Name, of_a, of_b)                                  \
  template <class T> struct Name {                                          \
    using A = compute_t<T>;                                                 \
    using W = Wide<T>;                                                      \
    static BARACUDA_D A da(A dy, A a, A b, A alpha = A(1)) { return of_a; } \
    static BARACUDA_D A db(A dy, A a, A b, A alpha = A(1)) { return of_b; } \
  };

}  // namespace partial
}  // namespace baracuda
