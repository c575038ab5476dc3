#pragma once
// integers   formats of whole numbers, whose codes are a stream of bits.
#include "quantize/format.cuh"

namespace baracuda {

template <int BITS, bool SIGNED> struct Whole : Grouped<Whole<BITS, SIGNED>> {
  template <int N> static BARACUDA_D void codes(const Stored& w, const StoredRow& row, i64 k, float (&x)[N]) {
    constexpr int bytes = N * BITS / 8, unit = BITS == 3 ? (N == format_run ? 4 : 1) : bytes < 16 ? bytes : 16;
    const auto words = load_codes < bytes, BITS == 8 ? 8 : unit > (row.codes + k / 8 * BITS, w.whole);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const u32 code = stream_code<BITS>(words, j);
      constexpr u32 half = 1u << (BITS - 1);
      x[j] = SIGNED ? small_whole(code ^ half) - static_cast<float>(half) : small_whole(code);
    }
  }
};

using Int8 = Whole<8, true>;
using UInt8 = Whole<8, false>;
using Int4 = Whole<4, true>;
using UInt4 = Whole<4, false>;
using UInt3 = Whole<3, false>;
using UInt2 = Whole<2, false>;

}  // namespace baracuda
