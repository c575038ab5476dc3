#pragma once
// gated_rms_norm   what the kernels of the gated RMS norm share: the gate, a lane's chunks of a row, a row's statistics.
//
// A row is cut into chunks of 16 bytes; chunk c belongs to lane c % LANES. A sum runs over the elements of a chunk, over a
// lane's chunks, then over the lanes as a tree: the number of columns alone fixes its order. What is normalised is scaled
// by a power of two that brings the row's largest element near 1, so that squares stay in range.
#include <baracuda/math.cuh>

#include "sums.cuh"

namespace baracuda::gated {

// 1 / (1 + exp(-z)); for 16 bits to about 2^-17, and 0 where it is below 2^-126.
template <class T, class A = acc_t<T>> BARACUDA_D A sigmoid(A z) {
  if constexpr (is_half<T>) return math::fast_rcp(1.0f + math::fast_exp2(z * -1.44269504f));
  else return A(1) / (A(1) + math::exp(-z));
}

// CHUNKS chunks of a lane, or with CHUNKS 0 as many as there are, read when they are needed.
template <class T, int LANES, int CHUNKS, bool WIDE> struct Held {
  static constexpr int VEC = vec_elems<T>;
  Chunk v[CHUNKS ? CHUNKS : 1];
  const T* from;
  int operand;
  template <class P>
  BARACUDA_D Held(const P& p, int operand, const void* x, i64 offset, int lane, bool live) : operand(operand) {
    from = static_cast<const T*>(x) + offset;
#pragma unroll
    for (int i = 0; i < CHUNKS; ++i) {
      const i64 col = (static_cast<i64>(i) * LANES + lane) * VEC;
      v[i] = load_chunk<T, WIDE>(p, operand, from, col, live ? p.cols - col : 0);
    }
  }
  template <class P> BARACUDA_D Vec<acc_t<T>, VEC> at(const P& p, int i, i64 col) const {
    if constexpr (CHUNKS > 0) return to_acc(unpack<T>(v[i]));
    else return to_acc(unpack<T>(load_chunk<T, WIDE>(p, operand, from, col, p.cols - col)));
  }
};

// Calls f(number, column) for a lane's chunks of a row.
template <int VEC, int LANES, int CHUNKS, class P, class F> BARACUDA_D void chunks_of(const P& p, int lane, F f) {
  if constexpr (CHUNKS > 0) {
#pragma unroll
    for (int i = 0; i < CHUNKS; ++i) f(i, (static_cast<i64>(i) * LANES + lane) * VEC);
  } else {
#pragma unroll 1
    for (i64 col = static_cast<i64>(lane) * VEC; col < p.cols; col += static_cast<i64>(LANES) * VEC) f(0, col);
  }
}

// What is normalised, of one chunk: x, or x silu(z) where the gate comes first.
template <class T, int VEC, class A = acc_t<T>>
BARACUDA_D Vec<A, VEC> normalised(bool before, Vec<A, VEC> x, const Vec<A, VEC>& z) {
  if (before) return x;
#pragma unroll
  for (int k = 0; k < VEC; ++k) x[k] *= z[k] * sigmoid<T>(z[k]);
  return x;
}

// A power of two, the largest of a row (or the root of eps) times which is near 1.
template <class A> BARACUDA_D A scale_of(A top, double eps) {
  const A most = math::maximum(top, math::sqrt(static_cast<A>(eps)));
  if constexpr (is_same<A, double>) {
    const i64 exponent = __double_as_longlong(most) >> 52 & 2047;
    return __longlong_as_double(min<i64>(max<i64>(2046 - exponent, 1), 2045) << 52);
  } else {
    const int exponent = __float_as_int(most) >> 23 & 255;
    return __int_as_float(min(max(254 - exponent, 1), 253) << 23);
  }
}

// Of a row: the scale, and 1 / sqrt(mean + eps) of the scaled elements.
template <class A> struct Statistics {
  A scale, rstd;
};
template <class T, int LANES, int CHUNKS, bool WIDE, class P, class H, class A = acc_t<T>>
BARACUDA_D Statistics<A> statistics(const P& p, const H& x, const H& z, int lane, A* board) {
  constexpr int VEC = vec_elems<T>;
  A top = A(0), sum = A(0);
  chunks_of<VEC, LANES, CHUNKS>(p, lane, [&](int i, i64 col) {
    const auto a = normalised<T, VEC>(p.before, x.at(p, i, col), z.at(p, i, col));
#pragma unroll
    for (int k = 0; k < VEC; ++k) top = math::maximum(top, math::abs(a[k]));
  });
  Statistics<A> s;
  s.scale = scale_of(norm::lanes_reduce<Max, LANES>(top, board), p.eps);
  chunks_of<VEC, LANES, CHUNKS>(p, lane, [&](int i, i64 col) {
    const auto a = normalised<T, VEC>(p.before, x.at(p, i, col), z.at(p, i, col));
#pragma unroll
    for (int k = 0; k < VEC; ++k) sum = math::fma(a[k] * s.scale, a[k] * s.scale, sum);
  });
  constexpr int warps = LANES > warp_size ? LANES / warp_size : 1;
  const A mean = norm::lanes_reduce<Sum, LANES>(sum, board + warps) / static_cast<A>(p.cols);
  s.rstd = A(1) / math::sqrt(mean + static_cast<A>(p.eps) * s.scale * s.scale);
  return s;
}

}  // namespace baracuda::gated
