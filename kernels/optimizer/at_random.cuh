#pragma once
// at_random   numbers rounded to a 16-bit float, up or down at random so that the mean is kept (stochastic_cast), and to
//             other floats to the nearest.
#include <baracuda/math.cuh>
#include <baracuda/vector.cuh>
#include "random/draws.cuh"
#include "random/stochastic_code.cuh"

namespace baracuda {

template <class T> struct HalfCodes;
template <> struct HalfCodes<f16> {
  static constexpr FloatCodes codes{10, -14, 0x7bffu, 0x7c00u};
  static constexpr u32 nan = 0x7e00u;
};
template <> struct HalfCodes<bf16> {
  static constexpr FloatCodes codes{7, -126, 0x7f7fu, 0x7f80u};
  static constexpr u32 nan = 0x7fc0u;
};

// x[k] rounded by 16 bits of the word of draw number / 2 + k / 2, number a multiple of N: for even numbers the upper ones.
template <int N> BARACUDA_D Vec<bf16, N> halves_at_random(const Vec<float, N>& x, u64 seed, u64 offset, u64 number) {
  constexpr int M = N == 1 ? 1 : N / 2;
  u32 words[M];
  draws<M>(seed, offset, number >> 1, words);
  if (N == 1 && (number & 1) != 0) words[0] <<= 16;
  Vec<bf16, N> y;
#pragma unroll
  for (int k = 0; k < N; ++k) {
    // A bfloat16 is the upper half of a float: what the lower half lacks to a whole is drawn, and carries.
    const u32 drawn = k % 2 == 0 ? ~words[k / 2] >> 16 : ~words[k / 2] & 0xffffu;
    const u32 bits = x[k] != x[k] ? 0x7fc00000u : __float_as_uint(x[k]) + drawn;
    reinterpret_cast<u16*>(&y)[k] = static_cast<u16>(bits >> 16);
  }
  return y;
}

// x[k] rounded by the word of draw number + k, number a multiple of N; bfloat16 of floats by half a word each.
template <class T, class A, int N>
BARACUDA_D Vec<T, N> at_random(const Vec<A, N>& x, u64 seed, u64 offset, u64 number) {
  if constexpr (!is_half<T>) {
    return cast_vec<T>(x);
  } else if constexpr (is_same<T, bf16> && is_same<A, float>) {
    return halves_at_random(x, seed, offset, number);
  } else {
    u32 words[N];
    draws<N>(seed, offset, number, words);
    Vec<T, N> y;
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const A size = math::abs(x[k]);
      u32 code = size != size ? HalfCodes<T>::nan : stochastic_code(HalfCodes<T>::codes, size, words[k]);
      code |= math::signbit(x[k]) ? 0x8000u : 0u;
      reinterpret_cast<u16*>(&y)[k] = static_cast<u16>(code);
    }
    return y;
  }
}

}  // namespace baracuda
