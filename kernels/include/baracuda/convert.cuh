#pragma once
// convert    any element to any other, rounded once. Elements go by code, so that a kernel may take the destination as
//            a number of its parameters.
//
// A value is what arithmetic has of an element, exactly: coded floats (fp8, e8m0, fp4) are float values, 4-bit integers
// are i8 and u8 values, every other element is its own. The rules are those of `core.element.cast`: to a float, to
// nearest even (e8m0: halves up); overflow gives infinity, NaN where there is none, and the largest finite value with
// `saturate`; a float is truncated to an integer and clamped, NaN to 0; integers wrap, and are clamped with `saturate`;
// to bool, x != 0. fp4 has neither infinity nor NaN: it always saturates, and NaN becomes its maximum.
#include <baracuda/types.cuh>

namespace baracuda {

// An element's code.
// clang-format off
enum ElementCode {
  code_f16, code_bf16, code_f32, code_f64, code_i8, code_i16, code_i32, code_i64, code_u8, code_u16, code_u32, code_u64,
  code_bool, code_e4m3, code_e5m2, code_e8m0, code_e2m1, code_s4, code_u4, element_codes
};
// clang-format on

// ---- what memory holds ----------------------------------------------------------------------------------------------

template <int CODE> struct Stored_ {
  using type = u8;  // fp8, e8m0; two 4-bit elements, the first in the low half
};
// clang-format off
template <> struct Stored_<code_f16> { using type = f16; };
template <> struct Stored_<code_bf16> { using type = bf16; };
template <> struct Stored_<code_f32> { using type = float; };
template <> struct Stored_<code_f64> { using type = double; };
template <> struct Stored_<code_i8> { using type = i8; };
template <> struct Stored_<code_i16> { using type = i16; };
template <> struct Stored_<code_i32> { using type = i32; };
template <> struct Stored_<code_i64> { using type = i64; };
template <> struct Stored_<code_u16> { using type = u16; };
template <> struct Stored_<code_u32> { using type = u32; };
template <> struct Stored_<code_u64> { using type = u64; };
template <> struct Stored_<code_bool> { using type = bool; };
// clang-format on
template <int CODE> using stored_t = typename Stored_<CODE>::type;

constexpr int stored_widths[element_codes] = {2, 2, 4, 8, 1, 2, 4, 8, 1, 2, 4, 8, 1, 1, 1, 1, 1, 1, 1};  // in bytes

constexpr bool is_packed(int code) { return code >= code_e2m1; }                            // two elements a byte
constexpr bool is_coded_float(int code) { return code >= code_e4m3 && code <= code_e2m1; }  // fp8, e8m0, fp4

// ---- small floats by their bits -------------------------------------------------------------------------------------

// EXPONENT and FRACTION bits below a sign; codes above `top` (by size, without the sign) are no finite numbers.
template <int EXPONENT, int FRACTION> struct SmallFloat {
  static constexpr int bias = (1 << (EXPONENT - 1)) - 1;
  static constexpr u32 sign = 1u << (EXPONENT + FRACTION);

  // Exact. A code is the upper bits of a float whose exponent is off by a constant, which one product puts right,
  // subnormals too.
  static BARACUDA_D float value(u32 code) {
    const float size = __uint_as_float((code & (sign - 1)) << (23 - FRACTION)) * __uint_as_float((254 - bias) << 23);
    return code & sign ? -size : size;
  }

  // The code nearest to |x|, ties to even, as if exponents went on beyond those there are; x is no NaN.
  static BARACUDA_D u32 nearest(u32 size) {
    constexpr u32 first = (128 - bias) << 23;  // the smallest normal number, as a float
    if (size < first) {
      constexpr u32 unit = (151 - bias - FRACTION) << 23;  // a float whose last bit is the smallest number
      return __float_as_uint(__uint_as_float(size) + __uint_as_float(unit)) - unit;
    }
    const u32 odd = size >> (23 - FRACTION) & 1;
    return ((size + (1u << (22 - FRACTION)) - 1 + odd) >> (23 - FRACTION)) - ((127 - bias) << FRACTION);
  }
};

// What such a code cannot say is `over` (of numbers too large) and `nan`; `top` is the largest finite one.
template <class F> BARACUDA_D u8 small_code(float x, u32 top, u32 over, u32 nan) {
  const u32 bits = __float_as_uint(x), size = bits & 0x7fffffffu;
  if (size > 0x7f800000u) return static_cast<u8>(nan);
  const u32 code = F::nearest(size);
  return static_cast<u8>((code > top ? over : code) | (bits >> 31 ? F::sign : 0u));
}

template <int CODE> BARACUDA_D float coded_value(u8 x) {
  if constexpr (CODE == code_e4m3) return (x & 0x7f) == 0x7f ? numeric<float>::nan() : SmallFloat<4, 3>::value(x);
  else if constexpr (CODE == code_e2m1) return SmallFloat<2, 1>::value(x);
  else if constexpr (CODE == code_e5m2) return __half2float(__ushort_as_half(static_cast<u16>(x << 8)));
  else return x == 255 ? numeric<float>::nan() : __uint_as_float(x ? static_cast<u32>(x) << 23 : 0x00400000u);
}

// 2^(code - 127); 255 is NaN, and what a number that is not positive becomes.
BARACUDA_D u8 e8m0_code(float x, bool saturate) {
  const u32 bits = __float_as_uint(x);
  if (x == 0.0f) return saturate ? 0 : 255;
  if (!(x > 0.0f)) return 255;
  // From 1.5 times a power of two on, the next one; the powers below 2^-126 are subnormal floats.
  const u32 code = bits < 0x00800000u ? (bits >= 0x00600000u ? 1 : 0) : (bits + 0x00400000u) >> 23;
  return static_cast<u8>(code > 254 ? (saturate ? 254 : 255) : code);
}

// CODE of a float value that is x, or x rounded to odd.
template <int CODE> BARACUDA_D u8 coded(float x, bool saturate) {
  if constexpr (CODE == code_e4m3) return small_code<SmallFloat<4, 3>>(x, 0x7e, saturate ? 0x7e : 0x7f, 0x7f);
  else if constexpr (CODE == code_e5m2) return small_code<SmallFloat<5, 2>>(x, 0x7b, saturate ? 0x7b : 0x7c, 0x7f);
  else if constexpr (CODE == code_e2m1) return small_code<SmallFloat<2, 1>>(x, 7, 7, 7);
  else return e8m0_code(x, saturate);
}

// x in float, cut off, with the last bit set where anything was lost: rounding that to 22 bits or fewer is rounding x.
template <class From> BARACUDA_D float odd_float(From x) {
  if constexpr (is_same<From, float>) return x;
  else if constexpr (is_half<From>) return widen(x);
  else if constexpr (sizeof(From) < 4) return static_cast<float>(static_cast<i32>(x));
  else {
    float y;
    bool lost;
    if constexpr (is_same<From, double>) y = __double2float_rz(x), lost = static_cast<double>(y) != x;
    else if constexpr (is_same<From, i32>) y = __int2float_rz(x), lost = __float2int_rz(y) != x;
    else if constexpr (is_same<From, u32>) y = __uint2float_rz(x), lost = __float2uint_rz(y) != x;
    else if constexpr (is_same<From, i64>) y = __ll2float_rz(x), lost = __float2ll_rz(y) != x;
    else y = __ull2float_rz(x), lost = __float2ull_rz(y) != x;
    return __uint_as_float(__float_as_uint(y) | (lost ? 1u : 0u));  // of NaN, NaN
  }
}

// ---- any element ----------------------------------------------------------------------------------------------------

// The value of an element; of two in a byte, that in the lower four bits.
template <int CODE> BARACUDA_D auto element_value(stored_t<CODE> x) {
  if constexpr (CODE == code_s4) return static_cast<i8>(((x & 15) ^ 8) - 8);
  else if constexpr (CODE == code_u4) return static_cast<u8>(x & 15);
  else if constexpr (CODE == code_e2m1) return coded_value<CODE>(x & 15);
  else if constexpr (is_coded_float(CODE)) return coded_value<CODE>(x);
  else return x;
}

template <class To> BARACUDA_D To within_range(To y) {  // of an infinity the largest finite number
  if constexpr (is_half<To>) {
    const float wide = widen(y);
    return wide == numeric<float>::infinity()    ? numeric<To>::max()
           : wide == -numeric<float>::infinity() ? numeric<To>::lowest()
                                                 : y;
  } else {
    return y == numeric<To>::infinity()    ? numeric<To>::max()
           : y == -numeric<To>::infinity() ? numeric<To>::lowest()
                                           : y;
  }
}

// The element of a value; 4-bit ones in the lower half of a byte.
template <int CODE, class From> BARACUDA_D stored_t<CODE> element_of(From x, bool saturate) {
  using To = stored_t<CODE>;
  if constexpr (CODE == code_s4 || CODE == code_u4) {
    constexpr int low = CODE == code_s4 ? -8 : 0, high = low + 15;
    if constexpr (is_floating<From>) return static_cast<u8>(max(low, min(high, cast<i32>(x))) & 15);
    else return static_cast<u8>((saturate ? max(low, min(high, cast_saturate<i32>(x))) : static_cast<int>(x)) & 15);
  } else if constexpr (is_coded_float(CODE)) {
    return coded<CODE>(odd_float(x), saturate);
  } else if constexpr (is_floating<To>) {
    const To y = cast<To>(x);
    return saturate ? within_range(y) : y;
  } else if constexpr (is_same<To, bool> || is_floating<From>) {
    return cast<To>(x);
  } else {
    return saturate ? cast_saturate<To>(x) : cast<To>(x);
  }
}

}  // namespace baracuda
