#pragma once
// tables     encoders of the 4-bit formats whose codes name numbers of a table.
#include "quantize/encode.cuh"
#include "quantize/formats/codebooks.cuh"

namespace baracuda {

// middle: between a sorted number and the one before it. name: the code of a number by its place.
struct Nf4Sorted {
  static constexpr __device__ float middle(int i) { return (nf4_values[i - 1] + nf4_values[i]) * 0.5f; }
  static BARACUDA_D u32 name(int at) { return at; }
};

// The sizes from 0 on have the codes 0, 1, 6, 7, 4, 5, 2, 3; a negative number's is 8 more, and 0 has one code.
struct Fp4Sorted {
  static constexpr __device__ u32 code(int rank) { return 0x32547610u >> (4 * rank) & 15u; }
  static constexpr __device__ float sorted(int i) { return i < 8 ? -fp4_values[code(7 - i)] : fp4_values[code(i - 8)]; }
  static constexpr __device__ float middle(int i) { return (sorted(i - 1) + sorted(i)) * 0.5f; }
  static BARACUDA_D u32 name(int at) {
    const u32 found = code(at < 8 ? 7 - at : at - 8);
    return found | (at < 8 && found != 0 ? 8u : 0u);
  }
};

using Nf4Encoder = TableCodes<Nf4Sorted>;
using Fp4Encoder = TableCodes<Fp4Sorted>;

}  // namespace baracuda
