#pragma once
// resampled  each place of an image from the places of another that it reads, or that read it, in their row-major order
#include <baracuda/opaque.cuh>
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
  // Whether a row of places is summed for itself before its weight, as kernels do that walk along the rows.
  static constexpr bool nested = MODE == Resample::cubic || (BACK && MODE == Resample::linear);

  // Calls use(weight, elements behind the first place) for the places of a row, then end(weight of the row). The last
  // axis' first weights are found once.
  template <class F, class G> BARACUDA_D void each_row(const i64* steps, F use, G end) const {
    constexpr int kept = BACK ? 8 : 4;
    A across[kept];
#pragma unroll
    for (int k = 0; k < kept; ++k) across[k] = low[2] + k <= high[2] ? static_cast<A>(weight(2, low[2] + k)) : A(0);
#pragma unroll 1
    for (i64 i = low[0]; i <= high[0]; ++i) {
      const A plane = static_cast<A>(weight(0, i));
#pragma unroll 1
      for (i64 j = low[1]; j <= high[1]; ++j) {
        const i64 step = i * steps[0] + j * steps[1];
#pragma unroll
        for (int k = 0; k < kept; ++k) {
          if (low[2] + k <= high[2]) use(across[k], step + (low[2] + k) * steps[2]);
        }
        if constexpr (BACK) {
#pragma unroll 1
          for (i64 l = low[2] + kept; l <= high[2]; ++l) use(static_cast<A>(weight(2, l)), step + l * steps[2]);
        }
        end(plane * static_cast<A>(weight(1, j)));
      }
    }
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

// A pick is what it picks, as a product with 1 is, but for the sign of 0.
template <Resample MODE, bool BACK, class A> BARACUDA_D A with_tap(A w, A x, A sum) {
  if constexpr (ResampleAxis<MODE>::picks && !BACK) return x;
  else return math::fma(w, x, sum);
}

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
  const auto add = [&](Vec<A, N>& to, A w, i64 step) {
    const Vec<A, N> x = spot.read(source, from, step);
#pragma unroll
    for (int k = 0; k < N; ++k) to[k] = with_tap<MODE, BACK>(w, x[k], to[k]);
  };
  if constexpr (Taps<A, MODE, BACK>::nested) {
    Vec<A, N> row = sum;
    taps.each_row(
        p.steps[1] + 1, [&](A w, i64 step) { add(row, w, step); },
        [&](A w) {
#pragma unroll
          for (int k = 0; k < N; ++k) sum[k] = math::fma(w, row[k], sum[k]), row[k] = A(0);
        });
  } else {
    taps.each(p.steps[1] + 1, [&](A w, i64 step) { add(sum, w, step); });
  }
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
  const auto add = [&](A(&to)[N], A w, i64 step) {
    const T* x = from + step;  // moved on, as multiples of the step would be kept in registers
#pragma unroll
    for (int k = 0; k < N; ++k, x += apart) {
      if (k < count) to[k] = with_tap<MODE, BACK>(w, to_acc(*x), to[k]);
    }
  };
  if constexpr (Taps<A, MODE, BACK>::nested) {
    A row[N];
#pragma unroll
    for (int k = 0; k < N; ++k) row[k] = A(0);
    taps.each_row(
        p.steps[1] + 1, [&](A w, i64 step) { add(row, w, step); },
        [&](A w) {
#pragma unroll
          for (int k = 0; k < N; ++k) sum[k] = math::fma(w, row[k], sum[k]), row[k] = A(0);
        });
  } else {
    taps.each(p.steps[1] + 1, [&](A w, i64 step) { add(sum, w, step); });
  }
  T* y = target + first * p.plane_steps[0][0];
#pragma unroll
  for (int a = 0; a < 4; ++a) y += spot.point[a] * p.steps[0][a];
#pragma unroll
  for (int k = 0; k < N; ++k, y += p.plane_steps[0][0]) {
    if (k < count) *y = from_acc<T>(sum[k]);
  }
}

// The place or two that an output reads along an axis.
template <class A> struct TapPair {
  i64 first;
  A low, high;
  int more;  // places behind the first

  template <class Axis> BARACUDA_D TapPair(const Axis& axis, i64 output) {
    const typename Axis::At at = axis.at(output);
    first = at.first, more = static_cast<int>(at.last - at.first);
    low = static_cast<A>(axis.weight(at, at.first)), high = static_cast<A>(axis.weight(at, at.last));
  }
};

// Of N such planes a thread makes as many neighbours of a row as 16 bytes hold, SOME planes at a time: their columns and
// weights are found once, and a store is whole.
template <class T, int N, int SOME, Resample MODE, class P>
BARACUDA_D void resample_rows(const P& p, T* target, const T* source) {
  using A = acc_t<T>;
  using Axis = ResampleAxis<MODE>;
  constexpr int wide = vec_elems<T>;
  Spot<1, false> spot;
  if (!spot.find(p)) return;
  const TapPair<A> outer(Axis(p, 0), spot.point[1]), inner(Axis(p, 1), spot.point[2]);
  const Axis axis(p, 2);
  const i64 begin = spot.point[3] * wide, column = p.steps[1][3];
  const int many = static_cast<int>(min<i64>(wide, axis.out - begin));
  i32 at[wide], next[wide];  // of an output that reads one place both are it, so that no load needs a branch
  A low[wide], high[wide];
  u32 pairs = 0;
#pragma unroll
  for (int e = 0; e < wide; ++e) {
    const TapPair<A> taps(axis, min(begin + e, axis.out - 1));
    at[e] = forgotten(static_cast<i32>(taps.first * column));
    next[e] = forgotten(static_cast<i32>((taps.first + taps.more) * column));
    low[e] = taps.low, high[e] = taps.high;
    pairs |= static_cast<u32>(taps.more) << e;
  }
  const i64 first = spot.group * N, last = min(first + N, p.planes);
  const i64 corner = outer.first * p.steps[1][1] + inner.first * p.steps[1][2];
  T* y = target + first * p.plane_steps[0][0] + spot.point[1] * p.steps[0][1] + spot.point[2] * p.steps[0][2] + begin;
#pragma unroll 1
  for (i64 plane = first; plane < last; plane += SOME) {
    Vec<A, wide> sum[SOME];
#pragma unroll
    for (int s = 0; s < SOME; ++s) {
#pragma unroll
      for (int e = 0; e < wide; ++e) sum[s][e] = A(0);
    }
#pragma unroll 1
    for (int i = 0; i <= outer.more; ++i) {
#pragma unroll 1
      for (int j = 0; j <= inner.more; ++j) {
        const A row = (i == 0 ? outer.low : outer.high) * (j == 0 ? inner.low : inner.high);
        const i64 there = corner + i * p.steps[1][1] + j * p.steps[1][2];
        const T* x[SOME];
#pragma unroll
        for (int s = 0; s < SOME; ++s) x[s] = opaque(source + min(plane + s, last - 1) * p.plane_steps[1][0] + there);
#pragma unroll
        for (int e = 0; e < wide; ++e) {
#pragma unroll
          for (int s = 0; s < SOME; ++s) {
            const A read = to_acc(load_readonly<1>(x[s] + at[e])[0]);
            sum[s][e] = with_tap<MODE, false>(row * low[e], read, sum[s][e]);
          }
          if constexpr (!Axis::picks) {
            const bool two = pairs >> e & 1;
#pragma unroll
            for (int s = 0; s < SOME; ++s) {
              const A read = to_acc(load_readonly<1>(x[s] + next[e])[0]);
              const A added = math::fma(row * high[e], read, sum[s][e]);
              sum[s][e] = two ? added : sum[s][e];
            }
          }
        }
      }
    }
#pragma unroll
    for (int s = 0; s < SOME; ++s, y += p.plane_steps[0][0]) {
      const Vec<T, wide> made = from_acc<T>(sum[s]);
      const bool there = plane + s < last;
      if (many == wide) store_whole(y, *reinterpret_cast<const uint4*>(&made), there);
      else store_strided(y, 1, made, there ? many : 0);
    }
  }
}

}  // namespace baracuda
