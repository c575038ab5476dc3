#pragma once
// divisors  the greatest common divisor and the least common multiple of integers.
#include "elementwise/binary_functors.cuh"

namespace baracuda {

template <class U> BARACUDA_D U common_divisor(U a, U b) {
#pragma unroll 1
  while (b != 0) {
    const U rest = a % b;
    a = b, b = rest;
  }
  return a;
}

// |a b| / gcd, in an order that wraps no sooner than the result.
template <class A> BARACUDA_D modular<A> common_multiple(A a, A b) {
  const modular<A> x = size_of(a), y = size_of(b), divisor = common_divisor(x, y);
  return divisor == 0 ? divisor : x / divisor * y;
}

BARACUDA_BINARY(Gcd, static_cast<A>(common_divisor(size_of(a), size_of(b))))
BARACUDA_BINARY(Lcm, static_cast<A>(common_multiple(a, b)))

}  // namespace baracuda
