#pragma once
// codes_plain   states of optimizers in 8 bits without a table: equal steps of a block's largest magnitude (bitsandbytes'
//               linear map), or float8_e4m3fn of it. A code's value comes from its bits; codes8.cuh has the blocks.
#include <baracuda/math.cuh>
#include <baracuda/quantize.cuh>

namespace baracuda {

// 255 (signed: 127 of either sign) steps up to 1; the signed map has 0 twice, as codes 127 and 128.
template <bool SIGNED> struct LinearCodes {
  static constexpr int zero = SIGNED ? 127 : 0, positives = SIGNED ? 127 : 255;

  BARACUDA_D float value(u32 code) const {
    const int step = static_cast<int>(code) - zero - (SIGNED && code > 127 ? 1 : 0);
    return static_cast<float>(step) * (1.0f / positives);
  }
  // The code nearest to x inverse, of two as near the even step, in the upper byte; NaN is the code of 1.
  BARACUDA_D u32 code(float x, float inverse) const {
    const float share = math::fmax(math::fmin(x * inverse, 1.0f), SIGNED ? -1.0f : 0.0f);
    // Added to 1.5 2^23, whose last bit is 1, a number is rounded to a whole one.
    const u32 step = __float_as_uint(math::fma(share, static_cast<float>(positives), 0x1.8p23f));
    return (step + zero + (SIGNED && share > 0.0f ? 1 : 0)) << 24;
  }
};

// float8_e4m3fn, of which 448 stands for the block's largest magnitude. NaN is 0x7f.
struct Fp8Codes {
  static constexpr float top = 448.0f;
  BARACUDA_D float value(u32 code) const { return SmallFloat<4, 3>::value(static_cast<u8>(code)) * (1.0f / top); }
  BARACUDA_D u32 code(float x, float inverse) const {
    return static_cast<u32>(quantize::E4M3Coder::code_of(x * inverse * top)) << 24;
  }
};

}  // namespace baracuda
