#pragma once
// codebooks  formats whose 4-bit codes name numbers of a table.
#include "quantize/format.cuh"

namespace baracuda {

static __constant__ float nf4_values[16] = {-1.0f,
                                            -0.6961928009986877f,
                                            -0.5250730514526367f,
                                            -0.39491748809814453f,
                                            -0.28444138169288635f,
                                            -0.18477343022823334f,
                                            -0.09105003625154495f,
                                            0.0f,
                                            0.07958029955625534f,
                                            0.16093020141124725f,
                                            0.24611230194568634f,
                                            0.33791524171829224f,
                                            0.44070982933044434f,
                                            0.5626170039176941f,
                                            0.7229568362236023f,
                                            1.0f};

// Pairs of codes in a byte, the first in the upper half.
struct Nf4 : Grouped<Nf4> {
  template <int N> static BARACUDA_D void codes(const Stored& w, const StoredRow& row, i64 k, float (&x)[N]) {
    const auto words = load_codes < N / 2, N == format_run ? 16 : 4 > (row.codes + k / 2, w.whole);
#pragma unroll
    for (int j = 0; j < N; ++j) x[j] = nf4_values[words[j / 8] >> (4 * (j % 8 ^ 1)) & 15u];
  }
};

}  // namespace baracuda
