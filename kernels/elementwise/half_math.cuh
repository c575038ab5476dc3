#pragma once
// half_math  exponentials and logarithms in float whose results are rounded to 16 bits: relative errors are below 2^-17
//            wherever the result is normal in the 16-bit type. All polynomials are minimax in relative error.
#include "elementwise/functors.cuh"

namespace baracuda {

namespace half_math {

constexpr float log2_e = 1.44269504f, ln_2 = 0.69314718f, log10_2 = 0.30103f;

BARACUDA_D float exp(float x) { return math::fast_exp(x); }

// log(1 + m) / m for -1/4 < m < 0.3; beyond, the hardware's absolute error is small against the logarithm.
BARACUDA_D float log1p_series(float m) {
  const float c[6] = {1.00000169f, -0.499983305f, 0.332917484f, -0.250991445f, 0.215521939f, -0.161445383f};
  return polynomial(m, c);
}

BARACUDA_D float log_of_sum(float m, float x, float near_scale, float far_scale) {  // of x = 1 + m
  return m > -0.25f && m < 0.3f ? m * log1p_series(m) * near_scale : ::__log2f(x) * far_scale;
}
BARACUDA_D float log(float x) { return log_of_sum(x - 1.0f, x, 1.0f, ln_2); }
BARACUDA_D float log2(float x) { return log_of_sum(x - 1.0f, x, log2_e, 1.0f); }
BARACUDA_D float log10(float x) { return log_of_sum(x - 1.0f, x, 0.43429448f, log10_2); }
BARACUDA_D float log1p(float x) { return log_of_sum(x, 1.0f + x, 1.0f, ln_2); }
BARACUDA_D float expm1(float x) {
  const float c[5] = {0.999999519f, 0.499973154f, 0.166678286f, 0.0421003234f, 0.00833328013f};
  return magnitude(x) < 0.5f ? x * polynomial(x, c) : exp(x) - 1.0f;
}

}  // namespace half_math

}  // namespace baracuda
