#pragma once
// numbers    encoders of whole numbers and of small floats.
#include "quantize/encode.cuh"

namespace baracuda {

using Int8Encoder = SymmetricCodes<8>;
using Int4Encoder = SymmetricCodes<4>;
using UInt8Encoder = AsymmetricCodes<8>;
using UInt4Encoder = AsymmetricCodes<4>;
using UInt3Encoder = AsymmetricCodes<3>;
using UInt2Encoder = AsymmetricCodes<2>;
using Fp8E4M3Encoder = FloatCodes<4, 3, quantize::scale_f32>;
using Fp8E5M2Encoder = FloatCodes<5, 2, quantize::scale_f32>;
using MxFp8E4M3Encoder = FloatCodes<4, 3, quantize::scale_e8m0>;
using MxFp8E5M2Encoder = FloatCodes<5, 2, quantize::scale_e8m0>;
using MxFp6E3M2Encoder = FloatCodes<3, 2, quantize::scale_e8m0>;
using MxFp6E2M3Encoder = FloatCodes<2, 3, quantize::scale_e8m0>;
using MxFp4Encoder = FloatCodes<2, 1, quantize::scale_e8m0>;
using NvFp4Encoder = FloatCodes<2, 1, quantize::scale_e4m3>;

}  // namespace baracuda
