#pragma once
// rounding  x to a whole number: down, up, to zero, to the nearest; and what is left of it.
#include "elementwise/gradients.cuh"

namespace baracuda {

// The multiple of 10^-decimals nearest to x, of two equally near the even one; |decimals| <= 22, so that the power is
// exact. A product that rounds to a tie lies on the side that its residue says.
BARACUDA_D double round_decimals(double x, double decimals) {
  double p = 1.0;
  for (int k = static_cast<int>(magnitude(decimals)); k > 0; --k) p *= 10.0;
  const bool finer = decimals > 0.0;
  const double t = finer ? x * p : x / p;
  if (!(magnitude(t) < 9007199254740992.0)) return x;  // 2^53: nothing to round, or NaN
  const double side = finer ? math::fma(x, p, -t) : math::fma(-t, p, x);
  double y = math::rint(t);
  if (magnitude(t - math::trunc(t)) == 0.5 && side != 0.0) y = side > 0.0 ? math::ceil(t) : math::floor(t);
  return finer ? y / p : y * p;
}

BARACUDA_UNARY(Floor, floats(x, [](auto v) { return math::floor(v); }))
BARACUDA_UNARY(Ceil, floats(x, [](auto v) { return math::ceil(v); }))
BARACUDA_UNARY(Trunc, floats(x, [](auto v) { return math::trunc(v); }))
BARACUDA_UNARY(Round, floats(x, [&](auto v) { return k.a == A(0) ? math::rint(v) : A(round_decimals(v, k.a)); }))
BARACUDA_UNARY(Frac, x - math::trunc(x))

namespace gradient {

BARACUDA_GRADIENT(Frac, dy)

}  // namespace gradient
}  // namespace baracuda
