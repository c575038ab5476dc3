#pragma once
// codebooks  formats whose 4-bit codes name numbers of a table; the first of two codes is in a byte's upper half.
#include "quantize/format.cuh"

namespace baracuda {

// By codes. In global memory: lanes that want different numbers of a line of the cache get them together.
static __device__ constexpr float nf4_values[16] = {-1.0f,
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
static __device__ constexpr float fp4_values[16] = {
    0.0f,  5.208333333e-03f,  0.66666667f,  1.0f,  0.33333333f,  0.5f,  0.16666667f,  0.25f,
    -0.0f, -5.208333333e-03f, -0.66666667f, -1.0f, -0.33333333f, -0.5f, -0.16666667f, -0.25f};

template <class TABLE> struct Codebook : Grouped<Codebook<TABLE>> {
  static constexpr int bits = 4, run_unit = 16, part_unit = 4;
  template <int WORDS> static BARACUDA_D float number(const Vec<u32, WORDS>& words, int j) {
    const u32 four = words[j / 8] >> (j % 2 ? 0 : 4) & each_byte(15);
    return __ldg(TABLE::values() + __byte_perm(four, 0, 0x4440u | j % 8 / 2));
  }

  // Every lane keeps a number of the table; from which lane one comes is a code's four lowest bits.
  struct Decoder {
    const float own = __ldg(TABLE::values() + threadIdx.x % 16);
    template <int WORDS> BARACUDA_D float operator()(const Vec<u32, WORDS>& words, int j) const {
      return __shfl_sync(0xffffffffu, own, static_cast<int>(words[j / 8] >> (4 * (j % 8 ^ 1))), 16);
    }
  };
};

struct Nf4Table {
  static BARACUDA_D const float* values() { return nf4_values; }
};
struct Fp4Table {
  static BARACUDA_D const float* values() { return fp4_values; }
};

using Nf4 = Codebook<Nf4Table>;
using Fp4 = Codebook<Fp4Table>;

}  // namespace baracuda
