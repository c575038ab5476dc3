#pragma once
// range      rows whose squares leave the range of the accumulator.
//
// A kernel that finds such a row, once its statistics are known, does not write it and calls `rescue`: the row is read
// again, scaled by a power of two that brings its largest element near 1, and computed in double. Sums run over a
// lane's chunks in order, then over the lanes as a tree.
#include "sums.cuh"

#include <baracuda/opaque.cuh>

namespace baracuda::norm {

enum Operand { X, RESIDUAL, WEIGHT, BIAS, Y, H };  // their indices in the row parameters

// The mean of the deviations corrects the mean, which was rounded more coarsely than they were. Where the mean is
// smaller than the deviations, their own rounding is the larger error, and on 16-bit data it does not average out.
template <class A> BARACUDA_D A mean_tail(A mean, A low, A variance) { return mean * mean > variance ? low : A(0); }

template <class T> constexpr bool leaves_range = !is_same<T, f16>;  // the squares of float16 fit a float

// Whether no sum has overflowed, and no square that underflowed would have counted beside spread = variance + eps.
template <class A> BARACUDA_D bool in_range(A spread) {
  return spread >= A(is_same<A, double> ? 0x1p-900 : 0x1p-100) && spread < numeric<A>::infinity();
}

// The power of two for a row whose largest element is `top`; keeps eps, which is multiplied by its square, in range
// too.
BARACUDA_D double range_scale(double top, double eps) {
  const i64 exponent = __double_as_longlong(math::maximum(top, math::sqrt(eps))) >> 52;
  return __longlong_as_double(max<i64>(2046 - exponent, 1) << 52);
}

// Offset of element `col` of a row in operand n.
template <bool WIDE, class P> BARACUDA_D i64 column(const P& p, int n, i64 col) {
  if constexpr (WIDE) return col;
  return p.inner_rank <= 1 ? col * p.inner[n][0] : general_offset(col, p.inner_rank, p.inner_shape, p.inner[n]);
}

template <int LANES> constexpr int board_size = LANES > warp_size ? LANES / warp_size : 1;

// Computes one row by LANES lanes; lanes of other groups of the warp call with live = false. Not inlined, and element
// by element, so that it takes no registers from the kernels.
template <class T, class W, int LANES, bool CENTER, bool WIDE, class P>
static __device__ __noinline__ void rescue_row(const P& p, i64 row, int lane, bool live, double* board) {
  using A = acc_t<T>;
  constexpr int VEC = vec_elems<T>;
  const double count = static_cast<double>(p.cols);
  const RowAt<WIDE> at(p, live ? row : 0);
  const bool stored = p.residual != nullptr && p.h != nullptr;  // may have replaced x
  const T* const from = static_cast<const T*>(stored ? p.h : p.x) + at.offset(p, stored ? H : X);
  double scale = 1;
  // Calls f(column, element times scale) for this lane's elements, chunk by chunk.
  auto each = [&](auto f) {
#pragma unroll 1
    for (i64 start = lane * VEC; live && start < p.cols; start += LANES * VEC) {
#pragma unroll 1
      for (i64 col = start; col < min<i64>(start + VEC, p.cols); ++col) {
        A x = to_acc(from[column<WIDE>(p, stored ? H : X, col)]);
        if (p.residual != nullptr && !stored) {
          const T* const residual = static_cast<const T*>(p.residual) + at.offset(p, RESIDUAL);
          x = to_acc(from_acc<T>(x + to_acc(residual[column<WIDE>(p, RESIDUAL, col)])));
        }
        f(col, static_cast<double>(x) * scale);
      }
    }
  };
  double top = 0;
  each([&](i64, double z) { top = math::maximum(top, math::abs(z)); });
  scale = range_scale(lanes_reduce<Max, LANES>(top, board), p.eps);

  double sum = 0, mean = 0, low = 0;
  each([&](i64, double z) { sum += CENTER ? z : z * z; });
  double variance = lanes_reduce<Sum, LANES>(sum, board + 2 * board_size<LANES>) / count;
  if constexpr (CENTER) {
    mean = variance;
    Pair<double> dev{0, 0};
    each([&](i64, double z) { dev = {dev.a + (z - mean), math::fma(z - mean, z - mean, dev.b)}; });
    dev = lanes_reduce<SumPair, LANES>(dev, reinterpret_cast<Pair<double>*>(board));
    low = dev.a / count;
    variance = (dev.b - dev.a * low) / count;
    if (variance < 0) variance = 0;
    low = mean_tail(mean, low, variance);
  }
  if (!live) return;
  const bool equal = variance == 0 && scale <= 1;  // then all deviations are 0, whatever the scale
  const double rstd = 1 / math::sqrt(variance + (equal ? p.eps : p.eps * scale * scale));
  if (lane == 0) {
    if (p.rstd != nullptr) static_cast<A*>(p.rstd)[row] = static_cast<A>(equal ? rstd : rstd * scale);
    if constexpr (CENTER) {
      if (p.mean != nullptr) {
        static_cast<A*>(p.mean)[row] = static_cast<A>((math::isfinite(mean) ? mean + low : mean) / scale);
      }
    }
  }
  T* const out = static_cast<T*>(p.y) + at.offset(p, Y);
  each([&](i64 col, double z) {
    A y = static_cast<A>((z - mean - low) * rstd);
    if (p.weight != nullptr) {
      Vec<A, 16 / sizeof(A)> weight{to_acc(static_cast<const W*>(p.weight)[column<WIDE>(p, WEIGHT, col)])};
      shift_weights<CENTER>(p, weight);
      y *= weight[0];
    }
    if constexpr (CENTER) {
      if (p.bias != nullptr) y += to_acc(static_cast<const W*>(p.bias)[column<WIDE>(p, BIAS, col)]);
    }
    out[column<WIDE>(p, Y, col)] = from_acc<T>(y);
  });
}

// Rescues rows first, first + step, … of a group, those whose bit in `lost` is set. Called by all threads of the warp,
// and of the block where a row takes more than a warp.
template <class T, class W, int LANES, int ROWS, bool CENTER, bool WIDE, class P>
BARACUDA_D void rescue(const P& p, u32 lost, i64 first, int step, int lane) {
  if constexpr (leaves_range<T>) {
    __shared__ __align__(16) double board[4 * board_size<LANES>];  // a pair a warp, twice: used in turn
    if (LANES > warp_size ? lost == 0 : !__any_sync(full_warp, lost)) return;
    // Hides that the array is this kernel's: the function would otherwise declare a second one.
    double* const shared = reinterpret_cast<double*>(forgotten(reinterpret_cast<u64>(board)));
#pragma unroll 1
    for (int r = 0; r < ROWS; ++r) {
      const i64 row = first + i64(r) * step;
      rescue_row<T, W, LANES, CENTER, WIDE>(p, row, lane, (lost >> r & 1) && row < p.rows, shared);
    }
  }
}

}  // namespace baracuda::norm
