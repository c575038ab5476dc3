#pragma once
// floats     formats of small floats, whose codes are a stream of bits.
#include "quantize/format.cuh"

namespace baracuda {

template <int EXPONENT, int FRACTION> struct SmallFloats : Grouped<SmallFloats<EXPONENT, FRACTION>> {
  template <int N> static BARACUDA_D void codes(const Stored& w, const StoredRow& row, i64 k, float (&x)[N]) {
    constexpr int bits = 1 + EXPONENT + FRACTION, bytes = N * bits / 8;
    constexpr int unit = bits == 6 ? (N == format_run ? 8 : 2) : bytes < 8 ? bytes : 8;
    const auto words = load_codes<bytes, unit>(row.codes + k / 8 * bits, w.whole);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const u32 code = stream_code<bits>(words, j);
      if constexpr (bits < 8) x[j] = SmallFloat<EXPONENT, FRACTION>::value(code);
      else x[j] = coded_value < EXPONENT == 4 ? code_e4m3 : code_e5m2 > (static_cast<u8>(code));
    }
  }
};

using Fp8E4M3 = SmallFloats<4, 3>;
using Fp8E5M2 = SmallFloats<5, 2>;
using Fp6E3M2 = SmallFloats<3, 2>;
using Fp6E2M3 = SmallFloats<2, 3>;
using Fp4E2M1 = SmallFloats<2, 1>;

}  // namespace baracuda
