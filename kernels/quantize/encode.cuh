#pragma once
// encode     numbers as the codes of low-bit formats: what a group's numbers are divided by, and the code of a quotient.
//
// An encoder of a format whose scales lie beside its codes is a struct with
//   static constexpr int bits;
//   static constexpr bool upper_first;       // of two codes in a byte, the first is in its upper half
//   explicit Encoder(const EncodedGroup&);   // held: the scale as stored, by: what numbers are divided by, zero
//   u32 code(float x) const;
// Operations are in float32, in the order of `encoders.py`.
#include "quantize/format.cuh"
#include <baracuda/quantize.cuh>
#include <baracuda/reduce.cuh>

namespace baracuda {

template <class T> BARACUDA_D void load_chunk(const T* from, bool wide, float (&x)[format_part]) {
  const auto held = wide ? load_vec<T, format_part, true, Access::readonly>(from)
                         : load_strided<T, format_part, Access::readonly>(from, 1, format_part);
#pragma unroll
  for (int j = 0; j < format_part; ++j) x[j] = cast<float>(held[j]);
}

// What `lanes` neighbours have is combined, the same for each of them.
template <class OP> BARACUDA_D float among_lanes(float x, int lanes, const OP& op) {
  for (int mask = 1; mask < lanes; mask *= 2) x = op(x, shuffle_xor(x, mask));
  return x;
}

// What is known of a group: its least and largest number (NaN apart, 0 counts), and how its scale is stored.
struct EncodedGroup {
  float least, most;
  int scale_code;
  float scale;  // of the whole matrix
  BARACUDA_D float size() const { return fmaxf(-least, most); }
  // A scale as its element holds it: rounded, and no larger than that goes.
  BARACUDA_D float held(float x) const {
    if (scale_code == code_f16) return widen(element_of<code_f16>(x, true));
    if (scale_code == code_bf16) return widen(element_of<code_bf16>(x, true));
    return fminf(x, numeric<float>::max());
  }
};

BARACUDA_D float nearest_within(float x, float low, float high) {
  const float y = x != x ? 0.0f : math::rint(x);
  return fminf(fmaxf(y, low), high);
}

// Codes of two's complement around 0: the scale is the largest number over the largest code.
template <int BITS> struct SymmetricCodes {
  static constexpr int bits = BITS;
  static constexpr bool upper_first = false;
  static constexpr float top = (1 << (BITS - 1)) - 1;
  float held, zero = 0.0f;
  quantize::Divisor by;
  BARACUDA_D explicit SymmetricCodes(const EncodedGroup& g) : held(g.held(g.size() / top)), by(held) {}
  BARACUDA_D u32 code(float x) const {
    return static_cast<u32>(static_cast<i32>(nearest_within(by(x), -top - 1.0f, top))) & ((1u << BITS) - 1);
  }
};

// Codes from 0 on: a group's numbers, and 0, lie between the first and the last.
template <int BITS> struct AsymmetricCodes {
  static constexpr int bits = BITS;
  static constexpr bool upper_first = false;
  static constexpr float top = (1 << BITS) - 1;
  float held, zero;
  quantize::Divisor by;
  BARACUDA_D explicit AsymmetricCodes(const EncodedGroup& g) : held(g.held((g.most - g.least) / top)), by(held) {
    zero = nearest_within(by(-g.least), 0.0f, top);
  }
  BARACUDA_D u32 code(float x) const {
    const float y = by(x);
    return static_cast<u32>(fminf(fmaxf((y != y ? 0.0f : math::rint(y)) + zero, 0.0f), top));
  }
};

// Codes of the sorted numbers of a table: a number between two is the nearer, the lower of equals; NaN is 0.
template <class TABLE> struct TableCodes {
  static constexpr int bits = 4;
  static constexpr bool upper_first = true;
  float held, zero = 0.0f;
  quantize::Divisor by;
  BARACUDA_D explicit TableCodes(const EncodedGroup& g) : held(g.held(g.size())), by(held) {}
  BARACUDA_D u32 code(float x) const {
    const float y = by(x) != by(x) ? 0.0f : by(x);
    int at = 0;
#pragma unroll
    for (int i = 1; i < 16; ++i) at += y > (TABLE::sorted(i - 1) + TABLE::sorted(i)) * 0.5f ? 1 : 0;
    return TABLE::name(at);
  }
};

// Codes of small floats, to nearest even, saturating. OF: `ScaleCode` of quantize.cuh.
template <int EXPONENT, int FRACTION, int OF> struct FloatCodes {
  using F = SmallFloat<EXPONENT, FRACTION>;
  static constexpr int bits = 1 + EXPONENT + FRACTION;
  static constexpr bool upper_first = false;
  // The codes beyond it are no numbers.
  static constexpr u32 top = EXPONENT == 4 && FRACTION == 3 ? 0x7eu : EXPONENT == 5 ? 0x7bu : F::sign - 1;
  static constexpr u32 none = bits == 8 ? 0x7fu : top;
  float held, zero = 0.0f;
  quantize::Divisor by;
  BARACUDA_D explicit FloatCodes(const EncodedGroup& g)
      : held(stored(g)), by(OF == quantize::scale_e4m3 ? held * g.scale : held) {}
  BARACUDA_D u32 code(float x) const {
    const float y = by(x);  // whose 0 has lost its sign
    const u32 sign = (__float_as_uint(x) ^ __float_as_uint(by.scale)) & 0x80000000u;
    return small_code<F>(y == 0.0f ? __uint_as_float(sign) : y, top, top, none);
  }

 private:
  static BARACUDA_D float stored(const EncodedGroup& g) {
    const float largest = F::value(top), most = g.size();
    if constexpr (OF == quantize::scale_f32) {
      return g.held(most / largest);
    } else if constexpr (OF == quantize::scale_e4m3) {
      return coded_value<code_e4m3>(coded<code_e4m3>(most / largest / g.scale, true));
    } else {
      // The power of two that brings the exponent of the largest number to that of the largest of the format.
      const int exponent =
          static_cast<int>(__float_as_uint(most) >> 23) - static_cast<int>(__float_as_uint(largest) >> 23);
      if (most == 0.0f) return 0x1p-127f;
      if (most > numeric<float>::max()) return numeric<float>::nan();
      return exponent < -126 ? 0x1p-127f : __uint_as_float(static_cast<u32>(exponent + 127) << 23);
    }
  }
};

}  // namespace baracuda
