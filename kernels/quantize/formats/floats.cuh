#pragma once
// floats     formats of small floats, whose codes are a stream of bits.
#include "quantize/format.cuh"
#include <baracuda/fp8.cuh>

namespace baracuda {

template <int EXPONENT, int FRACTION> struct SmallFloats : Grouped<SmallFloats<EXPONENT, FRACTION>> {
  static constexpr int bits = 1 + EXPONENT + FRACTION;
  template <int N> static BARACUDA_D auto words(const Stored& w, const StoredRow& row, i64 k) {
    constexpr int bytes = N * bits / 8;
    constexpr int unit = bits == 6 ? (N == format_run ? 8 : 2) : bytes < 8 ? bytes : 8;
    return load_codes<bytes, unit>(row.codes + k / 8 * bits, w.whole);
  }
  template <int N, int WORDS> static BARACUDA_D void numbers(const Vec<u32, WORDS>& words, float (&x)[N]) {
    if constexpr (bits == 8) {
#pragma unroll
      for (int j = 0; j < N; j += 4) four(words[j / 4], x + j);
    } else {
#pragma unroll
      for (int j = 0; j < N; ++j) x[j] = value(upmost(words, j));
    }
  }

 private:
  // By way of f16, which holds them all.
  static BARACUDA_D void four(u32 word, float* x) {
    const uint2 wide = widen_four<conditional<EXPONENT == 4, e4m3, e5m2>>(word);
    const float2 low = __half22float2(*reinterpret_cast<const __half2*>(&wide.x));
    const float2 high = __half22float2(*reinterpret_cast<const __half2*>(&wide.y));
    x[0] = low.x, x[1] = low.y, x[2] = high.x, x[3] = high.y;
  }
  // Code j at the top of a word, whose lower bits are others.
  template <int WORDS> static BARACUDA_D u32 upmost(const Vec<u32, WORDS>& words, int j) {
    const int word = bits * j / 32, end = bits * j % 32 + bits;
    return end <= 32 ? words[word] << (32 - end)
                     : __funnelshift_r(words[word], words[word + 1 < WORDS ? word + 1 : word], end - 32);
  }
  // As `SmallFloat::value`; the sign, which the shift repeats, stays at the top.
  static BARACUDA_D float value(u32 code) {
    constexpr u32 kept = 0x80000000u | ((1u << (bits - 1)) - 1) << (23 - FRACTION);
    constexpr u32 unit = (254 - SmallFloat<EXPONENT, FRACTION>::bias) << 23;
    return __uint_as_float(static_cast<u32>(static_cast<i32>(code) >> (8 - EXPONENT)) & kept) * __uint_as_float(unit);
  }
};

using Fp8E4M3 = SmallFloats<4, 3>;
using Fp8E5M2 = SmallFloats<5, 2>;
using Fp6E3M2 = SmallFloats<3, 2>;
using Fp6E2M3 = SmallFloats<2, 3>;
using Fp4E2M1 = SmallFloats<2, 1>;

}  // namespace baracuda
