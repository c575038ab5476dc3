#pragma once
// encode     numbers as the codes of low-bit formats: what a group's numbers are divided by, and the code of a quotient.
//
// An encoder of a format whose scales lie beside its codes is a struct with
//   static constexpr int bits;
//   static constexpr bool upper_first;       // of two codes in a byte, the first is in its upper half
//   static constexpr bool sizes;             // only sizes of numbers matter: a group's `least` is 0
//   static constexpr u32 turned, added;      // `near` gives a code with its bits `turned` turned, and `added` to that
//   explicit Encoder(const EncodedGroup&);   // held: the scale as stored, zero
//   bool serves;                             // whether `near` gives the code of every number of the group but NaN
//   u32 near(float x) const;
//   u32 code(float x) const;                 // of any number
//   void store(void* scales, int code, i64 at) const;  // its scale
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

// What is known of a group: its least and largest number (NaN apart, 0 counts), and how its scale is stored. Of encoders
// that ask for sizes, the largest size and 0.
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

// A whole number x from 0 on is in the last bits of 2^23 + x, above which it has the bits of 2^23.
constexpr u32 whole_bits = 0x4b000000u;

// A scale or zero point as a float of an element by its code.
BARACUDA_D void store_float(void* to, int code, i64 at, float x) {
  if (code == code_f32) static_cast<float*>(to)[at] = x;
  else if (code == code_f16) static_cast<f16*>(to)[at] = cast<f16>(x);
  else static_cast<bf16*>(to)[at] = cast<bf16>(x);
}

// Codes of two's complement around 0: the scale is the largest number over the largest code.
template <int BITS> struct SymmetricCodes {
  static constexpr int bits = BITS;
  static constexpr bool upper_first = false, sizes = true;
  static constexpr u32 turned = 1u << (BITS - 1), added = BITS == 8 ? 0 : whole_bits;
  static constexpr float top = (1 << (BITS - 1)) - 1;
  float held, zero = 0.0f;
  quantize::Divisor by;
  bool serves;
  BARACUDA_D explicit SymmetricCodes(const EncodedGroup& g)
      : held(g.held(g.size() / top)), by(held), serves(by.fast && g.size() * by.inverse < top + 0.4375f) {}
  BARACUDA_D void store(void* scales, int code, i64 at) const { store_float(scales, code, at, held); }
  BARACUDA_D u32 near(float x) const {
    return __float_as_uint(by.near(x) + (0x1p23f + static_cast<float>(turned))) - (whole_bits - added);
  }
  BARACUDA_D u32 code(float x) const {
    return static_cast<u32>(static_cast<i32>(nearest_within(by(x), -top - 1.0f, top))) & ((1u << BITS) - 1);
  }
};

// Codes from 0 on: a group's numbers, and 0, lie between the first and the last.
template <int BITS> struct AsymmetricCodes {
  static constexpr int bits = BITS;
  static constexpr bool upper_first = false, sizes = false;
  static constexpr u32 turned = 0, added = 0;
  static constexpr float top = (1 << BITS) - 1;
  float held, zero;
  quantize::Divisor by;
  bool serves;
  BARACUDA_D explicit AsymmetricCodes(const EncodedGroup& g)
      : held(g.held((g.most - g.least) / top)), by(held), serves(by.fast && g.size() * by.inverse < 0x1p20f) {
    zero = nearest_within(by(-g.least), 0.0f, top);
  }
  BARACUDA_D void store(void* scales, int code, i64 at) const { store_float(scales, code, at, held); }
  // Rounded at 1.5 · 2^23, which takes numbers below 0.
  BARACUDA_D u32 near(float x) const {
    const float whole = (by.near(x) + 0x1.8p23f) - 0x1.8p23f;
    return __float_as_uint(fminf(fmaxf(whole + zero, 0.0f), top) + 0x1p23f) - whole_bits;
  }
  BARACUDA_D u32 code(float x) const {
    const float y = by(x);
    return static_cast<u32>(fminf(fmaxf((y != y ? 0.0f : math::rint(y)) + zero, 0.0f), top));
  }
};

template <class TABLE> struct TableCodes;
// In global memory: lanes that want different numbers of a line of the cache get them together.
template <class TABLE> static __device__ constexpr auto table_parts = TableCodes<TABLE>::made();

// Codes of the sorted numbers of a table, from -1 to 1: a number between two is the nearer, the lower of equals; NaN is 0.
template <class TABLE> struct TableCodes {
  static constexpr int bits = 4;
  static constexpr bool upper_first = true, sizes = true;
  static constexpr u32 turned = 0, added = 0;
  float held, zero = 0.0f;
  quantize::Divisor by;
  bool serves;
  BARACUDA_D explicit TableCodes(const EncodedGroup& g)
      : held(g.held(g.size())), by(held), serves(by.fast && g.size() * by.inverse < 1.03125f) {}
  BARACUDA_D void store(void* scales, int code, i64 at) const { store_float(scales, code, at, held); }
  BARACUDA_D u32 near(float x) const {
    const float y = by.near(x);
    const u32 part = __float_as_uint(__fmaf_rz(y, parts_of_1, 0x1p23f + parts / 2)) & (parts - 1);
    const uint2 found = __ldg(reinterpret_cast<const uint2*>(table_parts<TABLE>.part + part));
    return TABLE::name(static_cast<int>(found.y) + (y > __uint_as_float(found.x) ? 1 : 0));
  }
  BARACUDA_D u32 code(float x) const {
    const float w = by.scale == 0.0f ? 0.0f : by(x), y = w != w ? 0.0f : w;  // the sign of 0 is of no account
    int at = 0;
#pragma unroll
    for (int i = 1; i < 16; ++i) at += y > TABLE::middle(i) ? 1 : 0;
    return TABLE::name(at);
  }

  // The range in parts of which each has one middle of two numbers at most: that, or a number beyond the range, and the
  // place of a number below it. Where 0 is a middle, it stands between two names of one code, and is none.
  static constexpr int parts = 32;
  static constexpr float parts_of_1 = 15.5f;
  struct Parts {
    struct alignas(8) {
      float middle;
      int below;
    } part[parts];
  };
  static constexpr __device__ Parts made() {
    Parts found{};
    for (int n = 0; n < parts; ++n) {
      found.part[n] = {3e38f, 0};
      for (int i = 1; i < 16; ++i) {
        const int of = static_cast<int>(TABLE::middle(i) * parts_of_1 + parts / 2);
        if (of < n || (of == n && TABLE::middle(i) == 0.0f)) ++found.part[n].below;
        else if (of == n) found.part[n].middle = TABLE::middle(i);
      }
    }
    return found;
  }
};

// Codes of small floats, to nearest even, saturating. OF: `ScaleCode` of quantize.cuh.
template <int EXPONENT, int FRACTION, int OF> struct FloatCodes {
  using F = SmallFloat<EXPONENT, FRACTION>;
  static constexpr int bits = 1 + EXPONENT + FRACTION;
  static constexpr bool upper_first = false, sizes = true, powers = OF == quantize::scale_e8m0;
  static constexpr bool pairs = EXPONENT == 2 && FRACTION == 1;
  static constexpr u32 turned = 0, added = pairs ? whole_bits : 0;
  // The codes beyond it are no numbers.
  static constexpr u32 top = EXPONENT == 4 && FRACTION == 3 ? 0x7eu : EXPONENT == 5 ? 0x7bu : F::sign - 1;
  static constexpr u32 none = bits == 8 ? 0x7fu : top;
  u32 scale_code = 0;  // of scales of 8 bits
  float held, zero = 0.0f;
  float scale;  // what numbers are divided by
  quantize::Divisor by;
  bool serves;
  BARACUDA_D explicit FloatCodes(const EncodedGroup& g)
      : held(stored(g, scale_code)), scale(OF == quantize::scale_e4m3 ? held * g.scale : held), by(divisor(scale)),
        serves(powers ? scale >= numeric<float>::tiny() || g.most == 0.0f : by.serves(g.size())) {}
  BARACUDA_D void store(void* scales, int code, i64 at) const {
    if constexpr (OF == quantize::scale_f32) store_float(scales, code, at, held);
    else static_cast<u8*>(scales)[at] = static_cast<u8>(scale_code);
  }
  BARACUDA_D u32 near(float x) const {
    const float size = math::fmin(math::abs(powers ? x * by.inverse : by.near(x)), F::value(top));
    return code_of(size) | (__float_as_uint(x) >> (32 - bits) & F::sign);
  }
  BARACUDA_D u32 code(float x) const {
    float by = scale;
    asm volatile("" : "+f"(by));  // else what is made of it is made for `near` too
    const float y = quantize::Divisor(by)(x);
    return small_code<F>(y, top, top, none);
  }

 private:
  // Of a power of two that is a normal number the exponent changes its sign; of zeros any number serves.
  static BARACUDA_D quantize::Divisor divisor(float scale) {
    return powers ? quantize::Divisor(scale, __uint_as_float(0x7f000000u - __float_as_uint(scale)))
                  : quantize::Divisor(scale);
  }
  // Of a size no larger than the largest number.
  static BARACUDA_D u32 code_of(float size) {
    if constexpr (pairs) {
      // The least of three lines, each rounded where it is added to a power of two, whose last bit is 1.
      const u32 first = __float_as_uint(math::fma(size, 2.0f, 0x1p23f)),
                second = __float_as_uint(size + (0x1p23f + 2.0f)),
                third = __float_as_uint(math::fma(size, 0.5f, 0x1p23f + 4.0f));
      return min(min(first, second), third);
    } else {
      // As in `Coder` of quantize.cuh.
      constexpr u32 first = (128 - F::bias) << 23, unit = (151 - F::bias - FRACTION) << 23;
      const u32 above = max(static_cast<i32>(__float_as_uint(size) & 0x7f800000u) - static_cast<i32>(first), 0);
      const u32 rounded = __float_as_uint(size + __uint_as_float(above + unit));
      return rounded - unit - above + (above >> (23 - FRACTION));
    }
  }
  static BARACUDA_D float stored(const EncodedGroup& g, u32& code) {
    const float largest = F::value(top), most = g.size();
    if constexpr (OF == quantize::scale_f32) {
      return g.held(most / largest);
    } else if constexpr (OF == quantize::scale_e4m3) {
      code = coded<code_e4m3>(most / largest / g.scale, true);
      return coded_value<code_e4m3>(static_cast<u8>(code));
    } else {
      // The power of two that brings the exponent of the largest number to that of the largest of the format, and 2^-127
      // at least, whose exponent is stored.
      constexpr i32 exponents = 0x7f800000, apart = (static_cast<i32>(top >> FRACTION) - F::bias) << 23;
      const i32 power = max((__float_as_int(most) & exponents) - apart, 0x00400000);
      const u32 bits = most > numeric<float>::max() ? 0x7fffffffu : static_cast<u32>(power);
      code = bits >> 23;
      return __uint_as_float(bits);
    }
  }
};

}  // namespace baracuda
