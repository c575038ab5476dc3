#pragma once
// exact_sum     sums of floats that are rounded once, whatever the order in which threads add: fixed-point numbers over the
//               whole range of the type, in digits of 24 bits that are added to by integer atomics.
//
// A digit is a signed word of 64 bits, so that 2^39 numbers may be added before one is full. A last word notes infinities
// and NaN.
#include <baracuda/math.cuh>

namespace baracuda {

template <class A> struct ExactSum {
  static constexpr bool single = is_same<A, float>;
  static constexpr int bits = single ? 24 : 53;         // of a number
  static constexpr int lowest = single ? -149 : -1074;  // exponent of the first digit's lowest bit
  static constexpr int pieces = single ? 2 : 4;         // digits that a number may reach into
  static constexpr int words = single ? exact_single_words : exact_double_words;
  static constexpr int digits = words - 1;
  static constexpr u64 mask = (u64(1) << 24) - 1;

  // Adds x to the number at `at`, to which other threads may add at the same time.
  static BARACUDA_D void add(u64* at, A x) {
    if (x == A(0)) return;
    if (!math::isfinite(x)) {
      atomicOr(at + digits, u64(math::isnan(x) ? 4 : x > A(0) ? 1 : 2));
      return;
    }
    u64 fraction;
    int exponent;
    if constexpr (single) {
      const u32 word = __float_as_uint(x);
      fraction = word & ((u32(1) << 23) - 1), exponent = static_cast<int>(word >> 23 & 255);
    } else {
      const u64 word = static_cast<u64>(__double_as_longlong(x));
      fraction = word & ((u64(1) << 52) - 1), exponent = static_cast<int>(word >> 52 & 2047);
    }
    if (exponent > 0) fraction |= u64(1) << (bits - 1);
    const int place = max(exponent, 1) - 1, first = place / 24, shift = place - 24 * first;
#pragma unroll
    for (int n = 0; n < pieces; ++n) {
      const u64 part = (n == 0 ? fraction << shift : fraction >> (24 * n - shift)) & mask;
      if (part != 0) atomicAdd(at + first + n, x < A(0) ? u64(0) - part : part);
    }
  }

  // The sum, rounded: of its magnitude every digit is made less than 2^24, then they are added from the highest on. What
  // is at `at` is lost.
  static BARACUDA_D A value(u64* at) {
    const u64 odd = at[digits];
    if (odd != 0) return odd == 1 ? numeric<A>::infinity() : odd == 2 ? -numeric<A>::infinity() : numeric<A>::nan();
    i64 carry = 0;
#pragma unroll 1
    for (int n = 0; n < digits; ++n) carry = (static_cast<i64>(at[n]) + carry) >> 24;
    const bool negative = carry < 0;
    carry = 0;
#pragma unroll 1
    for (int n = 0; n < digits; ++n) {
      const i64 digit = static_cast<i64>(negative ? u64(0) - at[n] : at[n]) + carry;
      at[n] = static_cast<u64>(digit) & mask, carry = digit >> 24;
    }
    double sum = static_cast<double>(carry);
    int top = digits;  // the digit that is 1 in the sum
#pragma unroll 1
    for (int n = digits - 1; n >= 0 && top - n < 6; --n) {
      if (sum == 0.0) top = n;
      sum += math::ldexp(static_cast<double>(at[n]), 24 * (n - top));
    }
    return static_cast<A>(math::ldexp(negative ? -sum : sum, 24 * top + lowest));
  }
};

}  // namespace baracuda
