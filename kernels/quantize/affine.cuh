#pragma once
// affine     numbers as codes with a scale and a zero point: q = clamp(round(x / scale) + zero), and (q - zero) scale.
//
// A target is an ElementCode of convert.cuh. What a block shares is loaded by codes, too, so that elements of scales and
// zero points are numbers of the parameters. Zero points count as clamped to the target's range.
#include <baracuda/convert.cuh>
#include <baracuda/math.cuh>
#include <baracuda/quantize.cuh>

namespace baracuda::affine {

enum Place { at_y, at_x, at_scale, at_zero, at_number, at_byte, places };  // operands of a map, in schedules/blocks.py

template <class T> constexpr int chunk_width = 32 / static_cast<int>(sizeof(T));  // of a dense chunk

// ---- quotients ------------------------------------------------------------------------------------------------------

// x / scale, rounded to nearest. Of floats by a product with the scale's inverse, whose remainder is exact and corrects
// it (Markstein 1990); where that is NaN, as of an infinite x, the product is right. A scale near the ends of the range is
// brought to its middle first, and x with it: what is lost of x on the way is a quotient beyond all codes, or below them.
// x also takes the scale's sign; beside a positive scale, a 0 keeps its sign through the remainder first scale - y.
template <class A> struct Quotient {
  A scale;
  BARACUDA_D explicit Quotient(A s) : scale(s) {}
  BARACUDA_D A operator()(A x) const { return x / scale; }
};
template <> struct Quotient<float> {
  float scale, inverse, factor;
  BARACUDA_D explicit Quotient(float s) {
    const float size = math::abs(s);
    factor = math::copysign(size < 0x1p-90f ? 0x1p100f : size > 0x1p90f ? 0x1p-100f : 1.0f, s);
    scale = s * factor, inverse = 1.0f / scale;
  }
  BARACUDA_D float operator()(float x) const {
    const float y = x * factor, first = y * inverse;
    const float made = math::fma(math::fma(first, scale, -y), -inverse, first);
    return made == made ? made : first;
  }
};
template <class A, int V, int S> BARACUDA_D Vec<A, V> quotients(const Vec<A, V>& x, const Vec<A, S>& scale) {
  Vec<A, V> q;
  if constexpr (S == 1) {
    const Quotient<A> by(scale[0]);
#pragma unroll
    for (int k = 0; k < V; ++k) q[k] = by(x[k]);
  } else {
#pragma unroll
    for (int k = 0; k < V; ++k) q[k] = Quotient<A>(scale[k])(x[k]);
  }
  return q;
}

// v rounded down or up at random, up in the share of cases that it lies above; what is not finite stays.
template <class A> BARACUDA_D A dithered(A v, u32 word) {
  const A below = math::floor(v);
  return below + (word < cast<u64>((v - below) * A(4294967296.0)) ? A(1) : A(0));
}

// ---- codes ----------------------------------------------------------------------------------------------------------

template <int CODE> struct WholeRange {
  static constexpr bool is_signed = CODE == code_i8 || CODE == code_i16 || CODE == code_i32 || CODE == code_s4;
  static constexpr int bits = is_packed(CODE) ? 4 : 8 * stored_widths[CODE];
  static constexpr i32 low = is_signed ? static_cast<i32>(-(1ll << (bits - 1))) : 0;
  static constexpr i32 high = static_cast<i32>(low + (1ll << bits) - 1);
};

// The integer nearest to a quotient, halves to even, plus the zero point, clamped to low .. high, which are of at most 16
// bits; of NaN the zero point. The ends, from which the zero point is taken, are then numbers of A.
template <class A> BARACUDA_D i32 whole_code(A v, i32 zero, i32 low, i32 high) {
  const i32 z = max(low, min(high, zero));
  const A number = v == v ? v : A(0), least = static_cast<A>(low - z), most = static_cast<A>(high - z);
  const A inside = number < least ? least : number > most ? most : number;
  if constexpr (is_same<A, float>) {  // a float whose last digit is 1 rounds, and holds an integer below its exponent
    return __float_as_int(inside + 12582912.0f) - 0x4b400000 + z;
  } else {
    return static_cast<i32>(math::rint(inside)) + z;
  }
}
template <class A> BARACUDA_D i32 int32_code(A v, i32 zero) {
  const double q = math::rint(static_cast<double>(v == v ? v : A(0))) + zero;
  return static_cast<i32>(q < -2147483648.0 ? -2147483648.0 : q > 2147483647.0 ? 2147483647.0 : q);
}

BARACUDA_D int coder_of(int code) {
  return code == code_e5m2 ? quantize::to_e5m2 : code == code_e2m1 ? quantize::to_e2m1 : quantize::to_e4m3;
}

// Codes of quotients as P says: `code`, and of integers of up to 16 bits low and high.
template <class P, class A, int V, int S>
BARACUDA_D Vec<i32, V> codes_of(const P& p, const Vec<A, V>& v, const Vec<i32, S>& zero) {
  Vec<i32, V> q;
  if (is_coded_float(p.code)) {
    const quantize::Coder coder(coder_of(p.code));
#pragma unroll
    for (int k = 0; k < V; ++k) q[k] = coder(odd_float(v[k]));
  } else if (p.code == code_i32) {
#pragma unroll
    for (int k = 0; k < V; ++k) q[k] = int32_code(v[k], zero[S == 1 ? 0 : k]);
  } else {
#pragma unroll
    for (int k = 0; k < V; ++k) q[k] = whole_code(v[k], zero[S == 1 ? 0 : k], p.low, p.high);
  }
  return q;
}

// V codes from element `at` on; of 4-bit ones two are a byte, the first in its lower half, and `at` is even.
template <int V> BARACUDA_D void store_codes(void* y, int code, i64 at, const Vec<i32, V>& q) {
  if (is_packed(code)) {
    if constexpr (V > 1) {
      Vec<u8, V / 2> pairs;
#pragma unroll
      for (int k = 0; k < V / 2; ++k) pairs[k] = static_cast<u8>((q[2 * k] & 15) | q[2 * k + 1] << 4);
      store(static_cast<u8*>(y) + (at >> 1), pairs);
    }
  } else if (code == code_i32) {
    store(static_cast<i32*>(y) + at, q);
  } else if (code == code_i16 || code == code_u16) {
    Vec<u16, V> words;
#pragma unroll
    for (int k = 0; k < V; ++k) words[k] = static_cast<u16>(q[k]);
    store(static_cast<u16*>(y) + at, words);
  } else {
    Vec<u8, V> bytes;
#pragma unroll
    for (int k = 0; k < V; ++k) bytes[k] = static_cast<u8>(q[k]);
    store(static_cast<u8*>(y) + at, bytes);
  }
}
template <int CODE, int V> BARACUDA_D Vec<stored_t<CODE>, V> load_codes(const void* x, i64 at) {
  if constexpr (!is_packed(CODE)) {
    return load<V>(static_cast<const stored_t<CODE>*>(x) + at);
  } else {
    Vec<u8, V> q;
    if constexpr (V == 1) {
      q[0] = static_cast<const u8*>(x)[at >> 1] >> (at & 1 ? 4 : 0) & 15;
    } else {
      const Vec<u8, V / 2> pairs = load<V / 2>(static_cast<const u8*>(x) + (at >> 1));
#pragma unroll
      for (int k = 0; k < V; ++k) q[k] = pairs[k / 2] >> (k % 2 ? 4 : 0) & 15;
    }
    return q;
  }
}

// ---- what a block shares --------------------------------------------------------------------------------------------

template <class A, int S, class T> BARACUDA_D Vec<A, S> shared_items(const T* from, i64 at, bool still) {
  if constexpr (S == 1) {
    Vec<A, 1> one;
    one[0] = cast<A>(from[at]);
    return one;
  } else {
    if (!still) return cast_vec<A>(load<S>(from + at));
    Vec<A, S> all;
#pragma unroll
    for (int k = 0; k < S; ++k) all[k] = cast<A>(from[at]);
    return all;
  }
}
template <class A, int S> BARACUDA_D Vec<A, S> scales_at(const void* from, int code, i64 at, bool still = true) {
  switch (code) {
    case code_f32: return shared_items<A, S>(static_cast<const float*>(from), at, still);
    case code_f16: return shared_items<A, S>(static_cast<const f16*>(from), at, still);
    case code_bf16: return shared_items<A, S>(static_cast<const bf16*>(from), at, still);
    case code_f64: return shared_items<A, S>(static_cast<const double*>(from), at, still);
    default: {
      const Vec<u8, S> codes = shared_items<u8, S>(static_cast<const u8*>(from), at, still);
      Vec<A, S> all;
#pragma unroll
      for (int k = 0; k < S; ++k) all[k] = static_cast<A>(coded_value<code_e8m0>(codes[k]));
      return all;
    }
  }
}
template <int S> BARACUDA_D Vec<i32, S> zeros_at(const void* from, int code, i64 at, bool still = true) {
  switch (code) {
    case code_i32: return shared_items<i32, S>(static_cast<const i32*>(from), at, still);
    case code_i8: return shared_items<i32, S>(static_cast<const i8*>(from), at, still);
    case code_u8: return shared_items<i32, S>(static_cast<const u8*>(from), at, still);
    case code_i16: return shared_items<i32, S>(static_cast<const i16*>(from), at, still);
    default: return shared_items<i32, S>(static_cast<const u16*>(from), at, still);
  }
}

// The scales and zero points of a chunk, or of neighbouring columns: S of each. P has scales, zero_points and their codes,
// and numbers in place of both where `uniform`. FLAT: all share one.
template <class A, int S> struct Shared {
  Vec<A, S> scale;
  Vec<i32, S> zero;

  template <bool FLAT, class P, class M> BARACUDA_D static Shared read(const P& p, const M& place) {
    Shared made;
    const i64 at = FLAT ? 0 : place.at[at_scale], zero_at = FLAT ? 0 : place.at[at_zero];
    if (p.uniform) return uniform(p);
    made.scale = scales_at<A, S>(p.scales, p.scale_code, at, place.splat >> at_scale & 1);
    made.zero = fill(0);
    if (p.zero_points != nullptr)
      made.zero = zeros_at<S>(p.zero_points, p.zero_code, zero_at, place.splat >> at_zero & 1);
    return made;
  }
  // That of the element beside, in the other half of a byte.
  template <class P, class M> BARACUDA_D static Shared beside(const P& p, const M& place) {
    static_assert(S == 1, "of one element");
    Shared made;
    if (p.uniform) return uniform(p);
    made.scale = scales_at<A, 1>(p.scales, p.scale_code, place.at[at_scale] + p.scales_step);
    made.zero = fill(0);
    if (p.zero_points != nullptr)
      made.zero = zeros_at<1>(p.zero_points, p.zero_code, place.at[at_zero] + p.zero_points_step);
    return made;
  }
  template <class P> BARACUDA_D static Shared uniform(const P& p) {
    Shared made;
#pragma unroll
    for (int k = 0; k < S; ++k) made.scale[k] = static_cast<A>(p.uniform_scale());
    const i64 zero = p.uniform_zero_point();
    made.zero = fill(static_cast<i32>(max<i64>(numeric<i32>::lowest(), min<i64>(numeric<i32>::max(), zero))));
    return made;
  }
  BARACUDA_D static Vec<i32, S> fill(i32 x) {
    Vec<i32, S> all;
#pragma unroll
    for (int k = 0; k < S; ++k) all[k] = x;
    return all;
  }
};

}  // namespace baracuda::affine
