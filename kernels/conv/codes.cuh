#pragma once
// codes      what convolutions of integers of 8 bits and of fp8 do between their sums and y, the same in every design.
//
//   s[o] = Σ (x - zero_x) (w - zero_w[o]), where what lies outside of x counts 0, plus bias[o] where that is int32
//   y = s modulo 2^32,   r = act(scale_x scale_w[o] s + bias[o]),   or of r an integer: r / scale_y + zero_y, to nearest,
//   ties to even, saturating;   of fp8 y = scale_y r, saturating where y is fp8, too
//
// R is double of integers: s is exact, the product of two scales, too, and one fused multiply-add gives the rest; and
// float of fp8. An absent operand is a null pointer. P has what conv/window.cuh says, and scale_x, zero_x, scale_y,
// zero_y: one number each; scale_w, zero_w with steps scale_step and zero_step, bias_whole: whether that is int32;
// is_unsigned: a bit for each of x and w; wide: a bit for y, scale_w and bias, whether outputs lie in aligned pieces; `out`: what y is; w_sums: of each output Σ w, and `none`: 16 bytes of zero_x,
// where there is a zero_x and tiles are of tensor cores.
#include <baracuda/fp8_cast.cuh>
#include "conv/tile.cuh"
#include "gemm/byte_tile.cuh"
#include "gemm/raster.cuh"

namespace baracuda {

// In a slice of x: zero points stand for elements that are not there.
struct ZeroPoints {
  template <class P, class T> static BARACUDA_D void copy(const P& p, T* to, const T* from, bool there) {
    if (p.none == nullptr) cp_async_16_of(to, from, there ? 16 : 0);
    else cp_async_16_of(to, there ? from : static_cast<const T*>(p.none), 16);
  }
};

// A zero point, of x (side 0) or w (side 1).
template <class P> BARACUDA_D int conv_zero(const P& p, const void* zeros, i64 at, int side) {
  if (zeros == nullptr) return 0;
  const u8 byte = static_cast<const u8*>(zeros)[at];
  return p.is_unsigned >> side & 1 ? static_cast<int>(byte) : static_cast<int>(static_cast<i8>(byte));
}

// The integer nearest to the quotient r / by, ties to even, without a division for each r: r times the inverse of `by`
// tells it wherever the quotient is no tie; next to one, and of what is not finite, r is divided.
BARACUDA_D double conv_nearest(double r, double by, double inverse) {
  const double near = r * inverse, whole = math::rint(near);
  if (math::abs(math::abs(near - whole) - 0.5) > 1e-6) return whole;
  return math::rint(r / by);
}

// Of outputs in a row, from output `first` on, what each has of a vector: of those that do not exist anything. step 0: one number
// for all; wide: they lie in aligned pieces.
template <int N, class V>
BARACUDA_D Vec<V, N> conv_channels(const void* from, i64 first, i64 step, i64 left, bool wide) {
  const V* const at = static_cast<const V*>(from) + first * step;
  if (wide) {
    if constexpr (N % 4 == 0) return load<N>(at);
  }
  if (step != 0) return load_strided<V, N>(at, step, left);
  Vec<V, N> same;
#pragma unroll
  for (int k = 0; k < N; ++k) same[k] = *at;
  return same;
}

// Codes of 8 bits of exact sums s in float, where its roundings cannot tell another one: of q = s scale_x scale_w / scale_y +
// bias / scale_y with a bound `err` of what they add up to, seven of 2^-24 of each term and at most 2^-60 of what underflows, the
// nearest integer is certain where q is farther than `err` from a tie, and what is cut to a code's range beyond 400, which no
// zero point brings back into it. Returns whether all are; else double decides (conv_nearest).
template <int N, class P>
BARACUDA_D bool conv_codes_in_float(const P& p, const Vec<i64, N>& s, i64 first, i64 left, Vec<u8, N>& y) {
  constexpr float most = 1125899906842624.0f, least = 1.0f / most;  // 2^50: beyond, scales may leave what float holds
  constexpr float shift = 12582912.0f;                              // 1.5 2^23: adding it rounds to an integer
  constexpr float cut = 400.0f;
  const float by = p.scale_y == nullptr ? 1.0f : *static_cast<const float*>(p.scale_y);
  const float scale_x = p.scale_x == nullptr ? 1.0f : *static_cast<const float*>(p.scale_x);
  const float inverse = 1.0f / by, each = scale_x * inverse;
  bool certain = by > least && by < most && math::abs(each) > least && math::abs(each) < most && p.activation <= 1;
  const bool is_signed = static_cast<ConvOut>(p.out) == ConvOut::i8;
  const float lowest = is_signed ? -128.0f : 0.0f, highest = is_signed ? 127.0f : 255.0f;
  float zero = 0.0f;
  if (p.zero_y != nullptr) {
    const u8 byte = *static_cast<const u8*>(p.zero_y);
    zero = is_signed ? static_cast<float>(static_cast<i8>(byte)) : static_cast<float>(byte);
  }
  const bool has_bias = p.bias != nullptr && !p.bias_whole;  // else s has it
  Vec<float, N> own, bias{};
  if (p.scale_w != nullptr) own = conv_channels<N, float>(p.scale_w, first, p.scale_step, left, p.wide >> 1 & 1);
  if (has_bias) bias = conv_channels<N, float>(p.bias, first, p.bias_step, left, p.wide >> 2 & 1);
#pragma unroll
  for (int k = 0; k < N; ++k) {
    const float by_this = p.scale_w == nullptr ? each : each * own[k];
    const int short_sum = static_cast<int>(s[k]);
    const float term = static_cast<float>(short_sum) * by_this, more = bias[k] * inverse;
    const float err = math::fma(math::abs(term) + math::abs(more), 0x1.cp-22f, 0x1p-60f);
    const float q = term + more, held = math::fmin(math::fmax(q, p.activation != 0 ? 0.0f : -cut), cut);
    const float whole = (held + shift) - shift;
    const bool told = math::abs(held - whole) + err < 0.5f || math::abs(q) - err > cut;  // neither where it is NaN
    certain = certain && (k >= left || (short_sum == s[k] && told));
    y[k] = static_cast<u8>(static_cast<int>(math::fmin(math::fmax(whole + zero, lowest), highest)));
  }
  return certain;
}

template <class R> struct ConvCodes {
  // Finishes outputs n … n + N - 1 of a group at a place, of which those before `left` exist.
  template <class S, int N, class P>
  static BARACUDA_D void put(const P& p, i64 group, const ConvRow& at, i64 n, i64 left, const Vec<S, N>& sum) {
    const ConvOut out = static_cast<ConvOut>(p.out);
    const i64 first = group * p.cols + n;
    Vec<S, N> s = sum;
    if constexpr (is_same<R, double>) {
      if (p.bias != nullptr && p.bias_whole) {
        const auto bias = conv_channels<N, int>(p.bias, first, p.bias_step, left, p.wide >> 2 & 1);
#pragma unroll
        for (int k = 0; k < N; ++k) s[k] += bias[k];
      }
      if (out == ConvOut::i32) {
        Vec<int, N> y;
#pragma unroll
        for (int k = 0; k < N; ++k) y[k] = static_cast<int>(s[k]);
        return store_at(p, group, at, n, left, y);
      }
    }
    if constexpr (is_same<R, double> && N > 1) {
      if (out == ConvOut::i8 || out == ConvOut::u8) {
        Vec<u8, N> y;
        if (conv_codes_in_float(p, s, first, left, y)) return store_at(p, group, at, n, left, y);
      }
    }
    const R scale = p.scale_x == nullptr ? R(1) : static_cast<R>(*static_cast<const float*>(p.scale_x));
    Vec<R, N> x;
    Vec<float, N> own, bias{};
    if (p.scale_w != nullptr) own = conv_channels<N, float>(p.scale_w, first, p.scale_step, left, p.wide >> 1 & 1);
    if (p.bias != nullptr && !p.bias_whole) {
      bias = conv_channels<N, float>(p.bias, first, p.bias_step, left, p.wide >> 2 & 1);
    }
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const R by_this = p.scale_w == nullptr ? scale : scale * static_cast<R>(own[k]);
      x[k] = math::fma(by_this, static_cast<R>(s[k]), static_cast<R>(bias[k]));
    }
    if (p.activation != 0) {
      with_activation<R, R>(p.activation, [&](const auto& act) {
#pragma unroll
        for (int k = 0; k < N; ++k) x[k] = act(x[k]);
      });
    }
    const R by = p.scale_y == nullptr ? R(1) : static_cast<R>(*static_cast<const float*>(p.scale_y));
    if constexpr (is_same<R, float>) {
#pragma unroll
      for (int k = 0; k < N; ++k) x[k] *= by;
    }
    if (out == ConvOut::f16) return store_at(p, group, at, n, left, cast_vec<f16>(x));
    if (out == ConvOut::bf16) return store_at(p, group, at, n, left, cast_vec<bf16>(x));
    if (out == ConvOut::f32) return store_at(p, group, at, n, left, cast_vec<float>(x));
    if constexpr (is_same<R, double>) {
      const bool is_signed = out == ConvOut::i8;
      const double lowest = is_signed ? -128.0 : 0.0, highest = is_signed ? 127.0 : 255.0;
      double zero = 0.0;
      if (p.zero_y != nullptr) {
        const u8 byte = *static_cast<const u8*>(p.zero_y);
        zero = is_signed ? static_cast<double>(static_cast<i8>(byte)) : static_cast<double>(byte);
      }
      const double inverse = 1.0 / by;
      Vec<u8, N> y;
#pragma unroll
      for (int k = 0; k < N; ++k) {
        const double code = conv_nearest(x[k], by, inverse) + zero;
        y[k] = static_cast<u8>(code != code ? 0
                                            : static_cast<int>(code < lowest    ? lowest
                                                               : code > highest ? highest
                                                                                : code));
      }
      store_at(p, group, at, n, left, y);
    } else {
      if (out == ConvOut::e4m3) store_at(p, group, at, n, left, cast_vec<e4m3>(x));
      else store_at(p, group, at, n, left, cast_vec<e5m2>(x));
    }
  }

 private:
  template <class U, int N, class P>
  static BARACUDA_D void store_at(const P& p, i64 group, const ConvRow& at, i64 n, i64 left, const Vec<U, N>& y) {
    const i64* const step = p.y_steps[0];
    U* const to = static_cast<U*>(p.y) + at.offset(step) + group * step[1] + n * step[2];
    if (p.wide & 1) store_vec<U, N, true>(to, y, left);
    else store_strided(to, step[2], y, left);
  }
};

// Finishes eight sums of integers of tensor cores, which had zero points for what lies outside.
template <class P>
BARACUDA_D void conv_integers_put(const P& p, i64 group, const ConvRow& at, i64 n, i64 left, const Vec<int, 8>& sum) {
  const i64 zero = conv_zero(p, p.none == nullptr ? nullptr : p.zero_x, 0, 0);
  Vec<i64, 8> whole;
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    whole[k] = sum[k];
    if (zero != 0) whole[k] -= zero * static_cast<const int*>(p.w_sums)[group * p.cols + n + min<i64>(k, left - 1)];
  }
  ConvCodes<double>::put(p, group, at, n, left, whole);
}

// The sums of a tile by tensor cores, with an instruction MMA: gemm/byte_tile.cuh, whose rows are windows here.
template <class MMA, int SIZE> struct ConvBytes : gemm::ByteTile<MMA, SIZE> {
  using Base = gemm::ByteTile<MMA, SIZE>;
  using Rows = WindowRows<u8, SIZE, Base::depth, Base::threads, ZeroPoints>;

  // Calls multiply(slice) for the slices of k, in their order. On return the ring is free.
  template <class P, class Multiply>
  static BARACUDA_D void each(u8* ring, const P& p, const Raster& task, const Multiply& multiply) {
    const i64 terms = p.taps * p.channels;
    Rows a(p, task.batch, task.m * SIZE);
    const u8* const w = static_cast<const u8*>(p.w) + task.batch * p.w_steps[0];
    typename Base::Operand b(w, p.w_steps[1], 1, task.n * SIZE, p.cols, true);
    typename Base::Slice slice(ring);
    for_slices<Base::stages>(
        static_cast<int>(div_up(terms, static_cast<i64>(Base::depth))),
        [&](int stage, int s) {
          const i64 left = terms - static_cast<i64>(s) * Base::depth;
          a.copy(ring + stage * Base::stage_bytes, 0);
          b.copy(ring + stage * Base::stage_bytes + Base::operand, left);
        },
        [&](int stage, int) {
          slice.offset = static_cast<u32>(stage * Base::stage_bytes);
          multiply(slice);
        });
  }

  // Calls finish(row, output, outputs that are left, sums) for what the tile has of a group.
  template <class P, class S, class Finish>
  static BARACUDA_D void out(u8* ring, const P& p, const Raster& task, const S& acc, const Finish& finish) {
    Base::put(ring, acc, [&](int row, int col, const auto& sum) {
      const i64 m = task.m * SIZE + row, n = task.n * SIZE + col;
      if (m < p.rows && n < p.cols) finish(m, n, p.cols - n, sum);
    });
  }
};

// A thread for each output, in any strides: a sum of A, to which add(sum, x, w, zero_x, zero_w) adds a product.
template <class R, class A, class TX, class TW, class P, class Add>
BARACUDA_D void conv_codes_each(const P& p, const Add& add) {
  const i64 index = thread_index(), outputs = p.groups * p.cols;
  if (index >= p.rows * outputs) return;
  u64 rest, n;
  const i64 quotient =
      static_cast<i64>(divmod(static_cast<u64>(index), static_cast<u64>(p.channels_inner ? outputs : p.rows), rest));
  const i64 m = p.channels_inner ? quotient : static_cast<i64>(rest);
  const i64 output = p.channels_inner ? static_cast<i64>(rest) : quotient;
  const i64 group = static_cast<i64>(divmod(static_cast<u64>(output), static_cast<u64>(p.cols), n));
  const ConvRow row(p, m);
  const TX* const x = static_cast<const TX*>(p.x) + row.batch * p.x_steps[0] + group * p.x_steps[1];
  const TW* const w =
      static_cast<const TW*>(p.w) + p.w_start + group * p.w_steps[0] + static_cast<i64>(n) * p.w_steps[1];
  const int zero_x = conv_zero(p, p.zero_x, 0, 0), zero_w = conv_zero(p, p.zero_w, output * p.zero_step, 1);
  A sum = A(0);
  ConvTap tap(p, 0);
  for (i64 t = 0; t < p.taps; ++t, tap.next(p)) {
    i64 offset;
    if (!conv_find(p, row, tap, offset)) continue;
    const TW* const filter = w + tap.offset(p.w_steps);
    for (i64 c = 0; c < p.channels; ++c)
      add(sum, x[offset + c * p.x_steps[2]], filter[c * p.w_steps[2]], zero_x, zero_w);
  }
  ConvCodes<R>::put(p, group, row, static_cast<i64>(n), 1, Vec<A, 1>{{sum}});
}

}  // namespace baracuda
