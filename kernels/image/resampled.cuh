#pragma once
// resampled  each place of an image from the places of another that it reads, or that read it, in their row-major order
#include <baracuda/planes.cuh>
#include "image/resample.cuh"

namespace baracuda {

// Operands: 0 what is made, 1 what is read.
template <class T, int N, bool TOGETHER, Resample MODE, bool BACK, class P>
BARACUDA_D void resample(const P& p, T* target, const T* source) {
  using A = acc_t<T>;
  using Axis = ResampleAxis<MODE>;
  Spot<N, TOGETHER> spot;
  if (!spot.find(p)) return;
  const Axis axes[3] = {Axis(p, 0), Axis(p, 1), Axis(p, 2)};
  i64 from[N], low[3], high[3];
  spot.begin(p, 1, from);
  typename Axis::At at[3];
#pragma unroll
  for (int a = 0; a < 3; ++a) {
    const i64 own = spot.point[1 + a];
    if constexpr (BACK) {
      low[a] = axes[a].reader(own, false), high[a] = axes[a].reader(own, true) - 1;
    } else {
      at[a] = axes[a].at(own);
      low[a] = at[a].first, high[a] = at[a].last;
    }
  }
  const auto weight = [&](int a, i64 other) {
    if constexpr (BACK) return axes[a].weight(axes[a].at(other), spot.point[1 + a]);
    else return axes[a].weight(at[a], other);
  };
  Vec<A, N> sum;
#pragma unroll
  for (int k = 0; k < N; ++k) sum[k] = A(0);
#pragma unroll 1
  for (i64 i = low[0]; i <= high[0]; ++i) {
    const A plane = static_cast<A>(weight(0, i));
    for (i64 j = low[1]; j <= high[1]; ++j) {
      const A row = plane * static_cast<A>(weight(1, j));
      const i64 step = i * p.steps[1][1] + j * p.steps[1][2];
      for (i64 l = low[2]; l <= high[2]; ++l) {
        const A w = row * static_cast<A>(weight(2, l));
        const Vec<A, N> x = spot.read(source, from, step + l * p.steps[1][3]);
#pragma unroll
        for (int k = 0; k < N; ++k) sum[k] = math::fma(w, x[k], sum[k]);
      }
    }
  }
  spot.write(p, 0, target, sum);
}

}  // namespace baracuda
