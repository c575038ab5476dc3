#pragma once
// binary_functors  what the functors of binary kinds share. Near relatives have a file together, with their gradients
// (elementwise/binary/), and a unit includes the file of its kind: F<T>::value(a, b, coefficients…) for elements T, computed
// in A = compute_t<T>.
//
// Result is the element of y: T, or bool for comparisons and logic. Definitions are PyTorch's; integers wrap. IN_ELEMENT:
// a number in the place of an operand is rounded to T, so that what compares with x is a number that x can hold.
#include "elementwise/functors.cuh"

namespace baracuda {

template <class T, int COEFFICIENTS = 0, bool IN_ELEMENT = false> struct Operation {
  using A = compute_t<T>;
  using Result = T;
  static constexpr int coefficients = COEFFICIENTS;
  static constexpr bool in_element = IN_ELEMENT;
};

template <class T, int COEFFICIENTS = 0> struct Relation : Operation<T, COEFFICIENTS, true> {
  using Result = bool;
};

// The type of integers modulo 2^n that A stands for, and |x| in it, right for the lowest integer too.
template <class A> using modular = conditional<sizeof(A) == 8, u64, u32>;

template <class A> BARACUDA_D modular<A> size_of(A x) {
  const modular<A> u = static_cast<modular<A>>(x);
  if constexpr (is_signed_int<A>) return x < A(0) ? modular<A>(0) - u : u;
  else return u;
}

#define BARACUDA_BINARY(Name, formula)                      \
  template <class T> struct Name : Operation<T> {           \
    using A = compute_t<T>;                                 \
    static BARACUDA_D A value(A a, A b) { return formula; } \
  };

#define BARACUDA_CHOICE(Name, formula)                      \
  template <class T> struct Name : Operation<T, 0, true> {  \
    using A = compute_t<T>;                                 \
    static BARACUDA_D A value(A a, A b) { return formula; } \
  };

#define BARACUDA_RELATION(Name, formula)                       \
  template <class T> struct Name : Relation<T> {               \
    using A = compute_t<T>;                                    \
    static BARACUDA_D bool value(A a, A b) { return formula; } \
  };

}  // namespace baracuda
