#pragma once
// ternary_gradients  what the gradients dy ∂f/∂a, dy ∂f/∂b and dy ∂f/∂c of the functions of three operands share, in
// A = acc_t<T>; they stand beside the functions, in elementwise/ternary/.
//
// Where a product of some of the factors leaves the range, or loses its digits, all are multiplied anew as fractions and
// exponents, so that the gradient is right wherever it is a number of the type.
#include "elementwise/ternary_functors.cuh"

namespace baracuda {
namespace ternary_partials {

// Of complex numbers a gradient has the conjugates of derivatives; a real number is its own.
template <class A> BARACUDA_D A conjugate(A x) { return x; }
template <class R> BARACUDA_D complex<R> conjugate(complex<R> z) { return math::conj(z); }

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
