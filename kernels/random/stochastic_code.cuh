#pragma once
// stochastic_code   a size as the code of a float of fewer bits, rounded up in the share of cases that it lies above.
#include <baracuda/math.cuh>

namespace baracuda {

// A float format by its numbers: bits of the fraction, the least exponent, the largest code, and what infinity is.
struct FloatCodes {
  int fraction, least;
  u32 max_code, over_code;
};

// The code of a finite size: its exponent, from `least` on, above the fraction; a fraction that grows to 2 becomes an
// exponent. `word` is a random one.
template <class A> BARACUDA_D u32 stochastic_code(const FloatCodes& f, A size, u32 word) {
  if (size == numeric<A>::infinity()) return f.over_code;
  int e;
  math::frexp(size, &e);
  e = size == A(0) ? f.least : max(e - 1, f.least);
  const A steps = math::ldexp(size, f.fraction - e), below = math::floor(steps);
  const u32 up = word < static_cast<u64>((steps - below) * A(4294967296.0)) ? 1u : 0u;
  const u32 found = (static_cast<u32>(e - f.least) << f.fraction) + static_cast<u32>(below) + up;
  return found > f.max_code ? f.over_code : found;
}

}  // namespace baracuda
