#pragma once
// gguf_simple   the blocks of 32 values of GGML: Q4_0.
#include "quantize/format.cuh"

namespace baracuda {

// float16 d, then 16 bytes: byte j has the values j (lower half) and j + 16 (upper half), x = d (code - 8).
struct Q4_0 {
  static constexpr int bytes = 18;
  template <int N> static BARACUDA_D void decode(const Stored& w, const StoredRow& row, i64 k, float (&x)[N]) {
    const u8* const block = row.codes + k / 32 * bytes;
    const float d = block_half(block, w.whole);
    const int first = static_cast<int>(k % 32), half = first / 16;
    const auto words = load_codes < N == 32 ? 16 : 8, 2 > (block + 2 + first % 16, w.whole);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const int place = N == 32 ? j % 16 : j, upper = N == 32 ? j / 16 : half;
      const u32 code = words[place / 4] >> (8 * (place % 4) + 4 * upper) & 15u;
      x[j] = d * (small_whole(code) - 8.0f);
    }
  }

  // A float16 at any address.
  static BARACUDA_D float block_half(const u8* from, bool whole) {
    const u16 bits =
        whole ? __ldg(reinterpret_cast<const u16*>(from)) : static_cast<u16>(__ldg(from) | __ldg(from + 1) << 8);
    return widen(__ushort_as_half(bits));
  }
};

}  // namespace baracuda
