#pragma once
// bits  bits of two integers, and the upper half of their product.
#include "elementwise/binary_functors.cuh"

namespace baracuda {

// The upper half of the product.
template <class T> struct Mulhi : Operation<T> {
  using A = compute_t<T>;
  static BARACUDA_D A value(A a, A b) {
    if constexpr (is_same<A, i64>) return __mul64hi(a, b);
    else if constexpr (is_same<A, u64>) return __umul64hi(a, b);
    else return static_cast<A>(static_cast<acc_t<T>>(a) * static_cast<acc_t<T>>(b) >> (8 * sizeof(T)));
  }
};

BARACUDA_BINARY(BitwiseAnd, a& b)
BARACUDA_BINARY(BitwiseOr, a | b)
BARACUDA_BINARY(BitwiseXor, a ^ b)

}  // namespace baracuda
