#pragma once
// integers   formats of whole numbers: 8 bits in a byte each, 4 bits in pairs, the lower half of a byte first.
#include "quantize/format.cuh"

namespace baracuda {

template <bool SIGNED> struct Bytes : Grouped<Bytes<SIGNED>> {
  template <int N> static BARACUDA_D void codes(const Stored& w, const StoredRow& row, i64 k, float (&x)[N]) {
    const auto words = load_codes<N, 8>(row.codes + k, w.whole);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const u32 code = words[j / 4] >> (8 * (j % 4)) & 255u;
      x[j] = SIGNED ? small_whole(code ^ 128u) - 128.0f : small_whole(code);
    }
  }
};

template <bool SIGNED> struct Nibbles : Grouped<Nibbles<SIGNED>> {
  template <int N> static BARACUDA_D void codes(const Stored& w, const StoredRow& row, i64 k, float (&x)[N]) {
    const auto words = load_codes < N / 2, N == format_run ? 16 : 4 > (row.codes + k / 2, w.whole);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const u32 code = words[j / 8] >> (4 * (j % 8)) & 15u;
      x[j] = SIGNED ? small_whole(code ^ 8u) - 8.0f : small_whole(code);
    }
  }
};

using Int8 = Bytes<true>;
using UInt8 = Bytes<false>;
using Int4 = Nibbles<true>;
using UInt4 = Nibbles<false>;

}  // namespace baracuda
