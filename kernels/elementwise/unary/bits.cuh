#pragma once
// bits  bits of integers.
#include "elementwise/functors.cuh"

namespace baracuda {

BARACUDA_UNARY(BitwiseNot, (is_same<T, bool> ? A(x == A(0)) : A(~x)))
BARACUDA_UNARY(Popcount, static_cast<A>(__popcll(bits_of<T>(x))))
BARACUDA_UNARY(Clz, static_cast<A>(__clzll(bits_of<T>(x)) - (64 - 8 * static_cast<int>(sizeof(T)))))

// The zeros below the lowest bit are the ones of x - 1 that x has not; 0 has as many as bits.
BARACUDA_UNARY(Ctz, static_cast<A>(__popcll(bits_of<T>(~x&(x - A(1))))))

}  // namespace baracuda
