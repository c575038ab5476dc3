#pragma once
// half_math  functions in float that are accurate enough for f16 and bf16 results, and cheap enough to hide behind memory.
//
// Relative errors below 2^-14 wherever the result is normal in the 16-bit type: at most an eighth of half an ulp.
#include <baracuda/math.cuh>

namespace baracuda {

BARACUDA_D float magnitude(float x) { return ::fabsf(x); }
BARACUDA_D double magnitude(double x) { return ::fabs(x); }
template <class T, class = enable_if<is_integer<T>>> BARACUDA_D T magnitude(T x) { return x; }

namespace half_math {

BARACUDA_D float tanh(float x) { return math::tanh(x); }
BARACUDA_D float gelu(float x) { return math::gelu(x); }
BARACUDA_D float gelu_tanh(float x) { return math::gelu_tanh(x); }
BARACUDA_D float exp(float x) { return math::exp(x); }
BARACUDA_D float normcdf(float x) { return 0.5f * math::erfc(x * -0.70710678f); }

}  // namespace half_math
}  // namespace baracuda
