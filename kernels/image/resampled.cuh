#pragma once
// resampled  each place of an image from the places of another that it reads, or that read it, in their row-major order
#include <baracuda/planes.cuh>
#include "image/resample.cuh"

namespace baracuda {

// What one place is made of: a range of places along each axis, and their weights.
template <class A, Resample MODE, bool BACK> struct Taps {
  using Axis = ResampleAxis<MODE>;
  Axis axes[3];
  typename Axis::At at[3];
  i64 own[3], low[3], high[3];

  template <class P> BARACUDA_D Taps(const P& p, const i64* place) : axes{Axis(p, 0), Axis(p, 1), Axis(p, 2)} {
#pragma unroll
    for (int a = 0; a < 3; ++a) {
      own[a] = place[a];
      if constexpr (BACK) {
        low[a] = axes[a].reader(own[a], false), high[a] = axes[a].reader(own[a], true) - 1;
      } else {
        at[a] = axes[a].at(own[a]);
        low[a] = at[a].first, high[a] = at[a].last;
      }
    }
  }
  BARACUDA_D double weight(int a, i64 other) const {
    if constexpr (BACK) return axes[a].weight(axes[a].at(other), own[a]);
    else return axes[a].weight(at[a], other);
  }
  // Calls use(weight, elements behind the first place), place by place.
  template <class F> BARACUDA_D void each(const i64* steps, F use) const {
#pragma unroll 1
    for (i64 i = low[0]; i <= high[0]; ++i) {
      const A plane = static_cast<A>(weight(0, i));
      for (i64 j = low[1]; j <= high[1]; ++j) {
        const A row = plane * static_cast<A>(weight(1, j));
        const i64 step = i * steps[0] + j * steps[1];
        for (i64 l = low[2]; l <= high[2]; ++l) use(row * static_cast<A>(weight(2, l)), step + l * steps[2]);
      }
    }
  }
};

// Operands: 0 what is made, 1 what is read.
template <class T, int N, bool TOGETHER, Resample MODE, bool BACK, class P>
BARACUDA_D void resample(const P& p, T* target, const T* source) {
  using A = acc_t<T>;
  Spot<N, TOGETHER> spot;
  if (!spot.find(p)) return;
  const Taps<A, MODE, BACK> taps(p, spot.point + 1);
  i64 from[N];
  spot.begin(p, 1, from);
  Vec<A, N> sum;
#pragma unroll
  for (int k = 0; k < N; ++k) sum[k] = A(0);
  taps.each(p.steps[1] + 1, [&](A w, i64 step) {
    const Vec<A, N> x = spot.read(source, from, step);
#pragma unroll
    for (int k = 0; k < N; ++k) sum[k] = math::fma(w, x[k], sum[k]);
  });
  spot.write(p, 0, target, sum);
}

// The same for N planes that lie one step apart: their addresses need no registers, so that N is large, and what a place
// costs to find, the divisions and the weights in f64, is shared by all of them. Neighbouring threads have neighbouring
// places of one stack.
template <class T, int N, Resample MODE, bool BACK, class P>
BARACUDA_D void resample_stack(const P& p, T* target, const T* source) {
  using A = acc_t<T>;
  Spot<1, false> spot;
  if (!spot.find(p)) return;
  const Taps<A, MODE, BACK> taps(p, spot.point + 1);
  const i64 first = spot.group * N, apart = p.plane_steps[1][0];
  const int count = static_cast<int>(min<i64>(N, p.planes - first));
  const T* const from = source + first * apart;
  A sum[N];
#pragma unroll
  for (int k = 0; k < N; ++k) sum[k] = A(0);
  taps.each(p.steps[1] + 1, [&](A w, i64 step) {
    const T* x = from + step;  // moved on, as multiples of the step would be kept in registers
#pragma unroll
    for (int k = 0; k < N; ++k, x += apart) {
      if (k < count) sum[k] = math::fma(w, to_acc(*x), sum[k]);
    }
  });
  T* y = target + first * p.plane_steps[0][0];
#pragma unroll
  for (int a = 0; a < 4; ++a) y += spot.point[a] * p.steps[0][a];
#pragma unroll
  for (int k = 0; k < N; ++k, y += p.plane_steps[0][0]) {
    if (k < count) *y = from_acc<T>(sum[k]);
  }
}

}  // namespace baracuda
