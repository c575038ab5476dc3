#pragma once
// near   square roots and quotients of floats without a branch, so that those of neighbours are computed beside each other:
// the correctly rounded ones where no number that was seen is out of range. Where one is, they are to be made anew.
//
// The steps are those of the compiler's own common path: Newton's of an approximation, and a correction by the remainder,
// which is exact. It is not where a dividend is below 2^-100, whose quotient may be the neighbour of the right one.
#include <baracuda/approximate.cuh>
#include <baracuda/math.cuh>

namespace baracuda {

struct Near {
  u32 least_root = ~0u, most_root = 0, divisor = 0;  // bits, which are in the order of floats that are not negative
  float dividend = 0.0f;

  BARACUDA_D bool usual() const {
    return least_root >= 0x0cffffffu && most_root <= 0x7f7fffffu && divisor <= 0x3c000000u && dividend < 0x1p60f;
  }

  // Of 0, which is far above all others where 1 is taken from its bits, or from 2^-101 on.
  BARACUDA_D float sqrt(float x) {
    least_root = min(least_root, __float_as_uint(x) - 1), most_root = max(most_root, __float_as_uint(x));
    const float y = approximate::rsqrt(math::fmax(x, 0x1p-101f)), s = x * y;
    return math::fma(math::fma(-s, s, x), 0.5f * y, s);
  }
  // a / b, b from 2^-60 to 2^60. The remainder is q b - a, as a - q b is a 0 without the sign of a q that is 0.
  BARACUDA_D float quotient(float a, float b) {
    divisor = max(divisor, __float_as_uint(b) - 0x21800000u);
    dividend = math::maximum(dividend, math::abs(a));
    const float first = math::fast_rcp(b), r = math::fma(first, math::fma(-b, first, 1.0f), first), q = a * r;
    return math::fma(math::fma(q, b, -a), -r, q);
  }
};

}  // namespace baracuda
