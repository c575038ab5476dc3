#pragma once
// quantized_group   columns of a token and head as codes with one scale of their own: for kernels that append to caches.
//
// scale = max|x| / largest code, a float; codes are x / scale, rounded to nearest, ties to even, and clamped. A group of
// zeros has scale 0, one that has something not finite scale NaN; their codes are 0. A maximum is exact, so that the order
// of lanes does not matter.
#include "quantize/affine.cuh"

namespace baracuda::quantized_group {

// Integers from -MOST to MOST; of NaN 0.
template <int MOST> struct WholeCoder {
  static BARACUDA_D u32 whole_of(float x) {  // the last bit of 2^23 is 1
    return __float_as_uint(math::fmin(math::fmax(x, -static_cast<float>(MOST)), static_cast<float>(MOST)) + 0x1.8p23f);
  }
  static BARACUDA_D u8 code_of(float x) { return static_cast<u8>(whole_of(x != x ? 0.0f : x)); }
  static BARACUDA_D u32 codes_of(const float* x) {
    u32 code[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) code[k] = whole_of(x[k]);
    return quantize::lowest_bytes(code);
  }
  BARACUDA_D u8 operator()(float x) const { return code_of(x); }
  template <class F> BARACUDA_D void with(const F& f) const { f(*this); }
};

// A format of caches: an ElementCode of convert.cuh.
template <int FORMAT> struct Coding;
template <> struct Coding<code_i8> {
  using Coder = WholeCoder<127>;
  static constexpr float largest = 127.0f;
};
template <> struct Coding<code_s4> {
  using Coder = WholeCoder<7>;
  static constexpr float largest = 7.0f;
};
template <> struct Coding<code_e4m3> {
  using Coder = quantize::E4M3Coder;
  static constexpr float largest = 448.0f;
};
template <> struct Coding<code_e5m2> {
  using Coder = quantize::E5M2Coder;
  static constexpr float largest = 57344.0f;
};

// The scale of a group whose largest size is `most`, which is NaN where one of its numbers is.
template <int FORMAT> BARACUDA_D float scale_of(float most) {
  return math::isfinite(most) ? most / Coding<FORMAT>::largest : numeric<float>::nan();
}

// The bytes of N neighbours of the group: of int4 two codes are a byte, the first in its lower half.
template <int FORMAT> constexpr int per_byte = FORMAT == code_s4 ? 2 : 1;
template <int FORMAT, int N>
BARACUDA_D Vec<u8, N / per_byte<FORMAT>> codes_of(const Vec<float, N>& x, float scale, float most) {
  using Coder = typename Coding<FORMAT>::Coder;
  const bool there = scale > 0.0f;  // otherwise what is made of another scale is replaced by zeros
  const quantize::Divisor by(there ? scale : 1.0f);
  Vec<u8, N> codes;
  if constexpr (N % 4 == 0) {
    codes = quantize::codes_by(
        x, Coder(), by.serves(most), [&](float v) { return by.near(v); }, [&](float v) { return by(v); });
#pragma unroll
    for (int k = 0; k < N / 4; ++k) reinterpret_cast<u32*>(&codes)[k] &= there ? ~0u : 0u;
  } else {
#pragma unroll
    for (int k = 0; k < N; ++k) codes[k] = there ? Coder::code_of(by(x[k])) : u8(0);
  }
  if constexpr (FORMAT == code_s4) {
    Vec<u8, N / 2> pairs;
#pragma unroll
    for (int k = 0; k < N / 2; ++k) pairs[k] = static_cast<u8>((codes[2 * k] & 15) | codes[2 * k + 1] << 4);
    return pairs;
  } else {
    return codes;
  }
}

// The codes of N neighbours over a scale that is given, any number: quotients as they are, NaN too.
template <int FORMAT, int N> BARACUDA_D Vec<u8, N> given_codes_of(const Vec<float, N>& x, float scale) {
  using Coder = typename Coding<FORMAT>::Coder;
  const auto exact = [&](float v) { return affine::Quotient<float>(scale)(v); };
  Vec<u8, N> codes;
  if constexpr (N % 4 == 0) {
    const quantize::Divisor by(scale);
    const auto near = [&](float v) { return by.near(v); };
    codes = quantize::codes_by(x, Coder(), by.serves(quantize::most_of(x, N)), near, exact);
  } else {
#pragma unroll
    for (int k = 0; k < N; ++k) codes[k] = Coder::code_of(exact(x[k]));
  }
  return codes;
}

}  // namespace baracuda::quantized_group
