#pragma once
// shifts  shifts of integers: by less than 0, or by as many bits as T has and more, they leave no bit of a.
#include "elementwise/binary_functors.cuh"

namespace baracuda {

// Shifts by less than 0 or by the width of T and more leave nothing; to the right, the sign in all bits.
template <class T> struct BitwiseLeftShift : Operation<T> {
  using A = compute_t<T>;
  static BARACUDA_D A value(A a, A b) {
    constexpr A bits = 8 * sizeof(T);
    return b < A(0) || b >= bits ? A(0) : static_cast<A>(static_cast<modular<A>>(a) << b);
  }
};

template <class T> struct BitwiseRightShift : Operation<T> {
  using A = compute_t<T>;
  static BARACUDA_D A value(A a, A b) {
    constexpr A bits = 8 * sizeof(T);
    if (b < A(0) || b >= bits) return a < A(0) ? static_cast<A>(-1) : A(0);
    return a >> b;
  }
};

// As of T without a sign: 0 comes in.
template <class T> struct ShiftRightLogical : Operation<T> {
  using A = compute_t<T>;
  static BARACUDA_D A value(A a, A b) {
    constexpr A bits = 8 * sizeof(T);
    return b < A(0) || b >= bits ? A(0) : static_cast<A>(bits_of<T>(a) >> b);
  }
};

}  // namespace baracuda
