#pragma once
// codes      chunks of quotients as codes, several a word, where it is known of a chunk that none of them is NaN.
//
// The codes are those of `codes_of` of affine.cuh, without its tests of each number. P has y, code, low and high.
#include "quantize/affine.cuh"
#include <baracuda/map.cuh>

namespace baracuda::affine {

// N elements in the accumulator. The upper one of two bf16 in a word needs no shift.
template <class T, int N> BARACUDA_D Vec<acc_t<T>, N> widened(const Vec<T, N>& x) {
  if constexpr (is_same<T, bf16> && N % 2 == 0) {
    const u32* const words = reinterpret_cast<const u32*>(&x);
    Vec<float, N> v;
#pragma unroll
    for (int k = 0; k < N; k += 2)
      v[k] = __uint_as_float(words[k / 2] << 16), v[k + 1] = __uint_as_float(words[k / 2] & 0xffff0000u);
    return v;
  } else {
    return to_acc(x);
  }
}

// V elements of operand n of a map as words, of up to 4 bytes each. Where one element stands for all, it alone is loaded,
// and spread when the words are used, so that no load waits for another.
template <class T, int V> struct MapWords {
  static constexpr int size = static_cast<int>(sizeof(T));
  using Item = Word<size>;
  Vec<u32, V * size / 4> word;

  static BARACUDA_D MapWords load(const T* x, const MapPlace<V, places>& place, int n) {
    MapWords made{};
    if (place.splat >> n & 1) made.word[0] = *reinterpret_cast<const Item*>(x + place.at[n]);
    else made.word = baracuda::load<V * size / 4>(reinterpret_cast<const u32*>(x + place.at[n]));
    return made;
  }
  BARACUDA_D MapWords spread(const MapPlace<V, places>& place, int n) const {
    if (!(place.splat >> n & 1)) return *this;
    constexpr u32 ones = size == 1 ? 0x01010101u : size == 2 ? 0x00010001u : 1u;
    MapWords all;
#pragma unroll
    for (int i = 0; i < V * size / 4; ++i) all.word[i] = word[0] * ones;
    return all;
  }
  BARACUDA_D Vec<T, V> elements(const MapPlace<V, places>& place, int n) const {
    const MapWords all = spread(place, n);
    return reinterpret_cast<const Vec<T, V>&>(all.word);
  }
};
// Elements for which there are no such words.
template <class T, int V> struct MapElements {
  Vec<T, V> x;
  static BARACUDA_D MapElements load(const T* x, const MapPlace<V, places>& place, int n) { return {place.load(x, n)}; }
  BARACUDA_D Vec<T, V> elements(const MapPlace<V, places>&, int) const { return x; }
};
template <class T, int V>
using MapHeld = conditional<sizeof(T) <= 4 && V * sizeof(T) % 4 == 0, MapWords<T, V>, MapElements<T, V>>;

// Whether all of a chunk have the scale and the zero point of its first element.
template <class M> BARACUDA_D bool shares(const M& place) {
  return place.splat >> at_scale & place.splat >> at_zero & 1;
}

// Whether no quotient of a chunk by its scales is NaN, and `near` of a Divisor makes each of them. most: the largest size
// in the chunk, NaN where one is NaN. Of several scales it is asked once, of the least and the largest.
template <int S> BARACUDA_D bool divides(const Vec<float, S>& scale, float most) {
  if constexpr (S == 1) {
    return quantize::Divisor(scale[0]).serves(most);
  } else {
    float least = scale[0], largest = scale[0];
#pragma unroll
    for (int k = 1; k < S; ++k) least = math::minimum(least, scale[k]), largest = math::maximum(largest, scale[k]);
    return least >= 0x1p-60f && largest <= 0x1p60f && most <= 0x1p60f;
  }
}

// Integers of BITS, 16 at most. A word holds them as its digits: counted from the lowest code on they are not negative, so
// that nothing is carried from one to the next.
template <int BITS> struct WholeCodes {
  template <class P, int V, int S>
  static BARACUDA_D void store(const P& p, i64 at, const Vec<float, V>& v, const Vec<i32, S>& zero) {
    constexpr int each = V * BITS < 32 ? V : 32 / BITS;
    constexpr u32 ones = BITS == 4 ? 0x11111111u : BITS == 8 ? 0x01010101u : 0x00010001u;
    constexpr u32 exponent = 0x4b400000u;  // of a float whose last bit is 1
    Vec<u32, V / each> word{};
    u32 lift = static_cast<u32>(-p.low) - exponent;
#pragma unroll
    for (int k = 0; k < V; ++k) {
      const i32 z = max(p.low, min(p.high, zero[S == 1 ? 0 : k]));
      const float inside = math::fmin(math::fmax(v[k], static_cast<float>(p.low - z)), static_cast<float>(p.high - z));
      u32 code = __float_as_uint(inside + 12582912.0f);  // ties go by the quotient, before the zero point is added
      if (S > 1) code += static_cast<u32>(z);
      else if (k == 0) lift += static_cast<u32>(z);
      word[k / each] += code << BITS * (k % each);
    }
    const u32 turned = p.low < 0 ? ones << (BITS - 1) : 0u;
#pragma unroll
    for (int i = 0; i < V / each; ++i) word[i] = (word[i] + lift * ones) ^ turned;
    u8* const to = static_cast<u8*>(p.y) + (BITS < 8 ? at >> 1 : at * (BITS / 8));
    if constexpr (V * BITS < 32) *reinterpret_cast<u16*>(to) = static_cast<u16>(word[0]);
    else baracuda::store(reinterpret_cast<u32*>(to), word);
  }
};

// Small floats by a coder of quantize.cuh.
template <class C> struct SmallCodes {
  template <class P, int V, int S>
  static BARACUDA_D void store(const P& p, i64 at, const Vec<float, V>& v, const Vec<i32, S>&) {
    Vec<u32, V / 4> word;
#pragma unroll
    for (int k = 0; k < V; k += 4) word[k / 4] = C::codes_of(v.v + k);
    if constexpr (!is_same<C, quantize::E2M1Coder>) {
      baracuda::store(reinterpret_cast<u32*>(static_cast<u8*>(p.y) + at), word);
    } else {  // of four codes a byte each, bytes 0 and 2 become those of two
      u8* const to = static_cast<u8*>(p.y) + (at >> 1);
#pragma unroll
      for (int i = 0; i < V / 4; ++i) word[i] |= word[i] >> 4;
      if constexpr (V == 4) {
        *reinterpret_cast<u16*>(to) = static_cast<u16>(__byte_perm(word[0], 0u, 0x4420));
      } else {
        Vec<u32, V / 8> pairs;
#pragma unroll
        for (int i = 0; i < V / 8; ++i) pairs[i] = __byte_perm(word[2 * i], word[2 * i + 1], 0x6420);
        baracuda::store(reinterpret_cast<u32*>(to), pairs);
      }
    }
  }
};

// f of what stores codes as P says, of all targets but int32.
template <class P, class F> BARACUDA_D void with_codes(const P& p, const F& f) {
  switch (p.code) {
    case code_e4m3: return f(SmallCodes<quantize::E4M3Coder>());
    case code_e5m2: return f(SmallCodes<quantize::E5M2Coder>());
    case code_e2m1: return f(SmallCodes<quantize::E2M1Coder>());
    case code_s4:
    case code_u4: return f(WholeCodes<4>());
    case code_i16:
    case code_u16: return f(WholeCodes<16>());
    default: return f(WholeCodes<8>());
  }
}

// 1 / s for s from 2^-60 to 2^60, rounded to nearest: the steps of the compiler's division where its test finds such an s.
BARACUDA_D float inverse_of(float s) {
  const float first = math::fast_rcp(s);
  return math::fma(first, -math::fma(first, s, -1.0f), first);
}

// The quotients of a chunk that `divides`.
template <int V, int S> BARACUDA_D Vec<float, V> near_quotients(const Vec<float, V>& x, const Vec<float, S>& scale) {
  Vec<float, V> v;
#pragma unroll
  for (int k = 0; k < V; ++k) {
    if constexpr (S == 1) v[k] = quantize::Divisor(scale[0]).near(x[k]);
    else v[k] = quantize::Divisor(scale[k], inverse_of(scale[k])).near(x[k]);
  }
  return v;
}

}  // namespace baracuda::affine
