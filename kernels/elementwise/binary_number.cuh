#pragma once
// binary_number  a number of the parameters in the place of an operand of a binary kind.
#include "elementwise/binary_functors.cuh"

namespace baracuda {

// The number as the arithmetic has it. Integers and bool have one of their own, that holds all of 64 bits.
template <class F, class T, class P> BARACUDA_D compute_t<T> given_number(const P& p) {
  using A = compute_t<T>;
  if constexpr (is_integer<T>) return cast<A>(cast<T>(p.whole()));
  else if constexpr (F::in_element) return cast<A>(cast<T>(p.number()));
  else return static_cast<A>(p.number());
}

// The operands of f in the kernels of its gradients: what was read, or the number in its place.
template <class F, class T, class P> struct Operands {
  using A = compute_t<T>;
  A number, alpha;
  int place;  // of the number: 0 none, 1 left, 2 right
  BARACUDA_D explicit Operands(const P& p)
      : number(given_number<F, T>(p)), alpha(cast<A>(p.alpha())), place(p.number_place) {}
  BARACUDA_D A left(A x) const { return place == 1 ? number : x; }
  BARACUDA_D A right(A x) const { return place == 2 ? number : x; }
};

}  // namespace baracuda
