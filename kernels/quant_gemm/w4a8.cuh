#pragma once
// w4a8       products of int8 by weights of 4 bits in groups of k: weights as bytes, what a group's sum is, what y is.
//
//   y[m, n] = scale_x[m] Σ over groups g of k   scales[n, g] Σ x[m, k] (w[n, k] - zeros[n, g])   + bias[n]
//
// The inner sums are exact in 32 bits. Each is rounded to float and multiplied by its scale, and these products are added
// in the order of k, one rounding each: bits depend on nothing but the numbers. P has x [batch, m, k], codes [batch, n, k
// / 2] with the first of two in the lower half of a byte, scales and zeros [batch, n, groups], scale_x [batch, m], bias [n]
// and y [batch, m, n] with their steps, `is_signed`: whether weights are of two's complement, `wide`: rows of x lie along
// memory and start 16-byte aligned, `whole`: rows of codes do, `wide_y`: so do those of y.
#include "quantize/format_number.cuh"
#include <baracuda/vector.cuh>

namespace baracuda {

constexpr u32 every_byte = 0x01010101u;

// Four weights of the lower halves of a word's bytes as int8, less a zero point up to 127, of which `zero` has four.
struct Nibbles {
  u32 flip;  // makes bytes of at least 128 from which the zero point is taken without a borrow
  BARACUDA_D explicit Nibbles(bool is_signed) : flip(is_signed ? 0x88888888u : 0x80808080u) {}
  BARACUDA_D u32 operator()(u32 word, u32 zero) const { return (((word & 0x0f0f0f0fu) ^ flip) - zero) ^ 0x80808080u; }
  // Eight weights of a word as the bytes of k in turn.
  BARACUDA_D uint2 in_turn(u32 word, u32 zero) const {
    const u32 even = (*this)(word, zero), odd = (*this)(word >> 4, zero);
    return make_uint2(__byte_perm(even, odd, 0x5140), __byte_perm(even, odd, 0x7362));
  }
};

// Up to 16 bytes `step` apart, others 0. Not inlined: whole accesses do without it.
static __device__ __noinline__ uint4 loose_bytes(const u8* from, i64 step, i64 count) {
  u32 words[4] = {};
#pragma unroll
  for (int k = 0; k < 16; ++k) {
    if (k < count) words[k / 4] |= static_cast<u32>(from[k * step]) << (8 * (k % 4));
  }
  return make_uint4(words[0], words[1], words[2], words[3]);
}

// BYTES neighbours, of which `left` exist: in one access where they lie so (`whole`) and all exist.
template <int BYTES> BARACUDA_D void load_row(u32* to, const u8* from, i64 step, i64 left, bool whole) {
  uint4 all;
  if (whole && left >= BYTES) {
    const auto word = __ldg(reinterpret_cast<const Word<BYTES>*>(from));
    const u32* const words = reinterpret_cast<const u32*>(&word);
#pragma unroll
    for (int i = 0; i < BYTES / 4; ++i) to[i] = words[i];
  } else {
    all = loose_bytes(from, step, min<i64>(left, BYTES));
    const u32 words[4] = {all.x, all.y, all.z, all.w};
#pragma unroll
    for (int i = 0; i < BYTES / 4; ++i) to[i] = words[i];
  }
}

// Where the scales and zero points of a batch index's rows of weights stand.
template <class P> struct GroupsOfRows {
  const P& p;
  i64 scale, zero;
  BARACUDA_D GroupsOfRows(const P& p, i64 batch)
      : p(p), scale(batch * p.scale_steps[0]), zero(batch * p.zero_steps[0]) {}
  BARACUDA_D i64 scale_place(i64 n, i64 g) const { return scale + n * p.scale_steps[1] + g * p.scale_steps[2]; }
  BARACUDA_D float scale_of(i64 n, i64 g) const { return format_number(p.scales, p.scale_code, scale_place(n, g)); }
  // A zero point as it is held, and four times that of such bits as bytes; that of two's complement is the 8 by which its
  // codes are moved.
  BARACUDA_D u32 zero_bits(i64 n, i64 g) const {
    if (p.zeros == nullptr) return p.is_signed ? 8 : 0;
    return __ldg(static_cast<const u8*>(p.zeros) + zero + n * p.zero_steps[1] + g * p.zero_steps[2]);
  }
  static BARACUDA_D u32 zero_of(u32 bits) { return min(bits, 127u) * every_byte; }
  BARACUDA_D u32 zero_of(i64 n, i64 g) const { return zero_of(zero_bits(n, g)); }
};

// What is added to the sum of groups for one of them.
BARACUDA_D float with_group(float sum, int of_group, float scale) { return sum + static_cast<float>(of_group) * scale; }

// y of the groups' sum of row m and column n.
template <class P> struct W4A8Output {
  const P& p;
  i64 batch;
  BARACUDA_D float scale(i64 m) const {  // by which row m is multiplied
    if (p.scale_x == nullptr) return 1.0f;
    return __ldg(static_cast<const float*>(p.scale_x) + batch * p.scale_x_steps[0] + m * p.scale_x_steps[1]);
  }
  template <class T> BARACUDA_D float value(float sum, float scale, i64 n) const {
    sum *= scale;
    return p.bias == nullptr ? sum : sum + to_acc(__ldg(static_cast<const T*>(p.bias) + n * p.bias_step));
  }
  template <class T> BARACUDA_D T* place(i64 m, i64 n) const {
    return static_cast<T*>(p.y) + batch * p.y_steps[0] + m * p.y_steps[1] + n * p.y_steps[2];
  }
  // Columns n … n + 7 of row m, of which some may not exist; n is a multiple of 8. scale: that of the row.
  template <class T> BARACUDA_D void put(Vec<float, 8> sum, float scale, i64 m, i64 n) const {
    const i64 there = p.n - n;
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      if (e < there) sum[e] = value<T>(sum[e], scale, n + e);
    }
    T* const to = place<T>(m, n);
    if (p.wide_y) store_vec<T, 8, true>(to, cast_vec<T>(sum), there);
    else store_strided(to, p.y_steps[2], cast_vec<T>(sum), there);
  }
};

}  // namespace baracuda
