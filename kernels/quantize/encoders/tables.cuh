#pragma once
// tables     encoders of the 4-bit formats whose codes name numbers of a table.
#include "quantize/encode.cuh"

namespace baracuda {

struct Nf4Sorted {
  static BARACUDA_D float sorted(int i) {
    constexpr float x[16] = {-1.0f,
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
    return x[i];
  }
  static BARACUDA_D u32 name(int at) { return at; }
};

// The negative numbers from the largest on have the codes 8 to 15 in the order 3, 2, 5, 4, 7, 6, 1 above 8; 0 is 0.
struct Fp4Sorted {
  static BARACUDA_D float size(int i) {
    constexpr float x[8] = {0.0f, 5.208333333e-03f, 0.16666667f, 0.25f, 0.33333333f, 0.5f, 0.66666667f, 1.0f};
    return x[i];
  }
  static BARACUDA_D float sorted(int i) { return i < 8 ? -size(7 - i) : size(i - 8); }
  static BARACUDA_D u32 name(int at) {
    const int rank = at < 8 ? 7 - at : at - 8;
    const u32 code = 0x32547610u >> (4 * rank) & 15u;
    return code | (at < 8 && code != 0 ? 8u : 0u);
  }
};

using Nf4Encoder = TableCodes<Nf4Sorted>;
using Fp4Encoder = TableCodes<Fp4Sorted>;

}  // namespace baracuda
