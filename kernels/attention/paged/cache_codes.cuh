#pragma once
// cache_codes    numbers of 4 or 8 bits, as caches of keys and values hold them, as f16 or bf16.
//
// A format is an ElementCode of convert.cuh: code_i8, code_s4 (two's complement, the first of two in the lower half of a
// byte), code_e4m3, code_e5m2. Both 16-bit elements hold each of these numbers exactly. NaN and infinities are kept.
//
// An integer becomes the lower bits of a power of two whose last bit is 1 (1024 in f16, 128 in bf16), and a subtraction
// takes the power away again: no conversions, of which a multiprocessor does few at a time.
#include <baracuda/convert.cuh>
#include <baracuda/fp8.cuh>
#include <baracuda/mma.cuh>

namespace baracuda::cache_codes {

template <int FORMAT> constexpr int bits = FORMAT == code_s4 ? 4 : 8;
template <int FORMAT> constexpr int piece = 128 / bits<FORMAT>;  // numbers in 16 bytes

// Two elements in a register, the first in its lower half.
template <class T> using Pair = conditional<is_same<T, f16>, __half2, __nv_bfloat162>;
template <class T> BARACUDA_D u32 subtract(u32 x, u32 y) {
  const u32 minus_one = is_same<T, f16> ? 0xbc00bc00u : 0xbf80bf80u;
  const Pair<T> z = __hfma2(*reinterpret_cast<const Pair<T>*>(&y), *reinterpret_cast<const Pair<T>*>(&minus_one),
                            *reinterpret_cast<const Pair<T>*>(&x));
  return *reinterpret_cast<const u32*>(&z);
}

// Four int8 of a word.
template <class T> BARACUDA_D void widen_bytes(u32* to, u32 word) {
  if constexpr (is_same<T, f16>) {  // 1024 + 128 + x
    const u32 above = word ^ 0x80808080u;
    to[0] = subtract<T>(__byte_perm(above, 0x64646464u, 0x4140), 0x64806480u);
    to[1] = subtract<T>(__byte_perm(above, 0x64646464u, 0x4342), 0x64806480u);
  } else {  // 128 + the lower seven bits, less 128 or, as the next power, 256: seven bits are all that bf16 has
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const u32 x = __byte_perm(word, 0x43434343u, n == 0 ? 0x4140 : 0x4342);
      to[n] = subtract<T>(x & 0xff7fff7fu, x & 0xff80ff80u);
    }
  }
}

// Eight int4 of a word.
template <class T> BARACUDA_D void widen_halves(u32* to, u32 word) {
  constexpr u32 unit = is_same<T, f16> ? 0x64006400u : 0x43004300u;
  const u32 low = word ^ 0x88888888u, high = low >> 4;
#pragma unroll
  for (int n = 0; n < 4; ++n) {
    const u32 pair = __byte_perm(low, high, n | (4 + n) << 8);
    to[n] = subtract<T>((pair & 0x000f000fu) | unit, unit | 0x00080008u);
  }
}

template <class T> BARACUDA_D float2 floats(u32 pair) {
  if constexpr (is_same<T, f16>) return __half22float2(*reinterpret_cast<const __half2*>(&pair));
  else return float2{__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u)};
}

// Numbers 8 n … 8 n + 7 of 16 bytes as T; SCALED: times `scale`, rounded once.
template <int FORMAT, class T, bool SCALED> BARACUDA_D uint4 eight(const u32 (&words)[4], int n, float scale) {
  using Exact = conditional<is_coded_float(FORMAT), f16, T>;
  u32 pair[4];
  if constexpr (FORMAT == code_s4) {
    widen_halves<T>(pair, words[n]);
  } else if constexpr (FORMAT == code_i8) {
    widen_bytes<T>(pair, words[2 * n]), widen_bytes<T>(pair + 2, words[2 * n + 1]);
  } else {
    using C = conditional<FORMAT == code_e4m3, e4m3, e5m2>;
    const uint2 first = widen_four<C>(words[2 * n]), second = widen_four<C>(words[2 * n + 1]);
    pair[0] = first.x, pair[1] = first.y, pair[2] = second.x, pair[3] = second.y;
  }
  if constexpr (SCALED || !is_same<Exact, T>) {
#pragma unroll
    for (u32& x : pair) {
      const float2 y = floats<Exact>(x);
      x = SCALED ? pack_pair<T>(y.x * scale, y.y * scale) : pack_pair<T>(y.x, y.y);
    }
  }
  return uint4{pair[0], pair[1], pair[2], pair[3]};
}

// Number n of a row.
template <int FORMAT> BARACUDA_D float number(const u8* row, int n) {
  if constexpr (FORMAT == code_i8) return static_cast<float>(static_cast<i8>(row[n]));
  else if constexpr (FORMAT == code_s4)
    return static_cast<float>(static_cast<int>(row[n / 2] >> n % 2 * 4 & 15 ^ 8) - 8);
  else return coded_value<FORMAT>(row[n]);
}

}  // namespace baracuda::cache_codes
