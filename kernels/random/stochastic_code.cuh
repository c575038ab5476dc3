#pragma once
// stochastic_code   a size as the code of a float of fewer bits, rounded up in the share of cases that it lies above.
#include <baracuda/math.cuh>

namespace baracuda {

// A float format by its numbers: bits of the fraction, the least exponent, the largest code, and what infinity is.
struct FloatCodes {
  int fraction, least;
  u32 max_code, over_code;
};

// The code of a size that is no NaN: its exponent, from `least` on, above the fraction; a fraction that grows to 2 becomes
// an exponent. `word` is a random one.
BARACUDA_D u32 stochastic_code(const FloatCodes& f, float size, u32 word) {
  const u32 bits = __float_as_uint(size), least = f.least + 127, exponent = max(bits >> 23, 1u);
  const u32 digits = (bits & 0x7fffffu) | (bits >> 23 ? 0x800000u : 0u);
  // What stands below the last bit of the code is the lower word, as a share of 2^32.
  const u32 down = min(23 - f.fraction + (least > exponent ? least - exponent : 0u), 63u);
  const u64 steps = static_cast<u64>(digits) << 32 >> down;
  const u32 up = word < static_cast<u32>(steps) ? 1u : 0u;
  const u32 found = ((max(exponent, least) - least) << f.fraction) + static_cast<u32>(steps >> 32) + up;
  return found > f.max_code ? f.over_code : found;
}
BARACUDA_D u32 stochastic_code(const FloatCodes& f, double size, u32 word) {
  if (size == numeric<double>::infinity()) return f.over_code;
  int e;
  math::frexp(size, &e);
  e = size == 0.0 ? f.least : max(e - 1, f.least);
  const double steps = math::ldexp(size, f.fraction - e), below = math::floor(steps);
  const u32 up = word < static_cast<u64>((steps - below) * 4294967296.0) ? 1u : 0u;
  const u32 found = (static_cast<u32>(e - f.least) << f.fraction) + static_cast<u32>(below) + up;
  return found > f.max_code ? f.over_code : found;
}

}  // namespace baracuda
