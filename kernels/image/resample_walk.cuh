#pragma once
// resample_walk  images resampled along columns: a thread has a few neighbouring columns of a plane and walks down, so that
//                each row is summed across once and serves all rows of the target that read it, or that it reads.
//
// A row across is a sum over its places in their order, and what is made a sum over such rows in theirs. A block has
// `walk` rows of the target, and the weights of rows, found once, in shared memory.
#include <baracuda/async_copy.cuh>
#include <baracuda/planes.cuh>
#include "image/resample.cuh"

namespace baracuda {

constexpr int walk_ahead = 4;  // rows that are asked for before they are read

// What an output reads along an axis: at most four places.
template <class A> struct WalkTaps {
  i32 first, count;
  A weights[4];

  template <class Axis> static BARACUDA_D WalkTaps of(const Axis& axis, i64 output) {
    const typename Axis::At at = axis.at(output);
    WalkTaps made;
    made.first = static_cast<i32>(at.first), made.count = static_cast<i32>(at.last - at.first) + 1;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      made.weights[k] = k < made.count ? static_cast<A>(axis.weight(at, at.first + k)) : A(0);
    }
    return made;
  }
};

// The columns of a thread: `many` of N, from `column` on, of plane `plane`.
template <int N> struct WalkColumns {
  bool there;
  i64 plane, column;
  int many;

  template <class P> BARACUDA_D WalkColumns(const P& p, i64 width) {
    u64 rest = static_cast<u64>(blockIdx.x) * planes_threads + threadIdx.x, group;
    there = rest < static_cast<u64>(p.items);
    rest = divmod(there ? rest : 0, static_cast<u64>(p.columns), group);
    plane = static_cast<i64>(rest), column = static_cast<i64>(group) * N;
    many = static_cast<int>(min<i64>(N, width - column));
  }
  template <class P> BARACUDA_D i64 begin(const P& p, int n) const {
    return offset(plane, p.plane_rank, p.plane_shape, p.plane_steps[n]);
  }
  // The columns of a row whose first one is at y.
  template <class T, class A> BARACUDA_D void write(T* y, i64 step, const A (&sum)[N]) const {
    Vec<T, N> made;
#pragma unroll
    for (int e = 0; e < N; ++e) made[e] = from_acc<T>(sum[e]);
    const bool whole = many == N && step == 1 && reinterpret_cast<u64>(y) % sizeof(made) == 0;
    if (whole) store(y, made);
    else store_strided(y, step, made, many);
  }
};

// Of N columns each TAPS places across: where they begin, how many they are, and their weights. ALL: they are TAPS of every
// column, and neighbours in memory.
template <class A, int N, int TAPS> struct WalkAcross {
  i32 first[N];
  A weights[N][TAPS];
  u32 counts;  // 32 / N bits a column
  bool all;

  static constexpr int bits = 32 / N;
  BARACUDA_D int count(int e) const { return static_cast<int>(counts >> bits * e & (~0u >> (32 - bits))); }
  BARACUDA_D void keep(int e, int count) { counts |= static_cast<u32>(count) << bits * e; }

  template <bool ALL, class T, class W> BARACUDA_D void row(const T* x, i64 step, A (&sum)[N], W beyond) const {
#pragma unroll
    for (int e = 0; e < N; ++e) {
      const T* const from = x + first[e];
      sum[e] = A(0);
#pragma unroll
      for (int k = 0; k < TAPS; ++k) {
        if constexpr (ALL) sum[e] = math::fma(weights[e][k], to_acc(from[k]), sum[e]);
        else if (k < count(e)) sum[e] = math::fma(weights[e][k], to_acc(from[k * step]), sum[e]);
      }
      if constexpr (!ALL) {
#pragma unroll 1
        for (int k = TAPS; k < count(e); ++k) sum[e] = math::fma(beyond(e, k), to_acc(from[k * step]), sum[e]);
      }
    }
  }
};

// y from x. The last four rows, summed across, are in registers.
template <class T, int N, Resample MODE, class P> BARACUDA_D void walk_outputs(const P& p, T* target, const T* source) {
  using A = acc_t<T>;
  using Axis = ResampleAxis<MODE>;
  __shared__ WalkTaps<A> rows[walk_most];
  const Axis down(p, 1), across(p, 2);
  const i64 begin = static_cast<i64>(blockIdx.y) * p.walk;
  const int many = static_cast<int>(min(p.walk, down.out - begin));
  for (int k = static_cast<int>(threadIdx.x); k < many; k += planes_threads) {
    rows[k] = WalkTaps<A>::of(down, begin + k);
  }
  __syncthreads();
  const WalkColumns<N> own(p, across.out);
  if (!own.there) return;
  WalkAcross<A, N, 4> taps;
  taps.all = p.steps[1][3] == 1, taps.counts = 0;
#pragma unroll
  for (int e = 0; e < N; ++e) {
    const WalkTaps<A> one = WalkTaps<A>::of(across, min(own.column + e, across.out - 1));
    taps.first[e] = static_cast<i32>(one.first * p.steps[1][3]), taps.keep(e, one.count);
    taps.all = taps.all && one.count == 4;
#pragma unroll
    for (int k = 0; k < 4; ++k) taps.weights[e][k] = one.weights[k];
  }
  const T* const x = source + own.begin(p, 1);
  T* y = target + own.begin(p, 0) + begin * p.steps[0][2] + own.column * p.steps[0][3];
  A ring[4][N];
#pragma unroll
  for (int s = 0; s < 4; ++s) {
#pragma unroll
    for (int e = 0; e < N; ++e) ring[s][e] = A(0);
  }
  const auto none = [](int, int) { return A(0); };
  i32 next = rows[0].first;  // the row behind the last that is in the ring
#pragma unroll 1
  for (int r = 0; r < many; ++r, y += p.steps[0][2]) {
    const int count = rows[r].count, end = rows[r].first + count;
#pragma unroll 1
    for (next = max(next, rows[r].first); next < end; ++next) {
#pragma unroll
      for (int s = 0; s < 3; ++s) {
#pragma unroll
        for (int e = 0; e < N; ++e) ring[s][e] = ring[s + 1][e];
      }
      const T* const line = x + next * p.steps[1][2];
      if (next + walk_ahead < down.in) prefetch_l2(line + walk_ahead * p.steps[1][2] + taps.first[0]);
      if (taps.all) taps.template row<true>(line, 1, ring[3], none);
      else taps.template row<false>(line, p.steps[1][3], ring[3], none);
    }
    A sum[N];
#pragma unroll
    for (int e = 0; e < N; ++e) sum[e] = A(0);
#pragma unroll
    for (int s = 0; s < 4; ++s) {
      if (s < 4 - count) continue;
      const A w = rows[r].weights[s - 4 + count];
#pragma unroll
      for (int e = 0; e < N; ++e) sum[e] = math::fma(w, ring[s][e], sum[e]);
    }
    own.write(y, p.steps[0][3], sum);
  }
}

// dx from dy. The sums of the four rows of dx that the next row of dy may read are in registers, and those before it done.
template <class T, int N, int TAPS, Resample MODE, class P>
BARACUDA_D void walk_inputs(const P& p, T* target, const T* source) {
  using A = acc_t<T>;
  using Axis = ResampleAxis<MODE>;
  __shared__ WalkTaps<A> rows[walk_most];
  const Axis down(p, 1), across(p, 2);
  const i64 begin = static_cast<i64>(blockIdx.y) * p.walk, end = min(begin + p.walk, down.in);
  const i64 from = down.reader(begin, false), to = down.reader(end - 1, true);
  const WalkColumns<N> own(p, across.in);
  WalkAcross<A, N, TAPS> taps;
  i32 readers[N];
  taps.all = p.steps[1][3] == 1, taps.counts = 0;
#pragma unroll
  for (int e = 0; e < N; ++e) {
    const i64 column = min(own.column + e, across.in - 1), low = across.reader(column, false);
    readers[e] = static_cast<i32>(low), taps.first[e] = static_cast<i32>(low * p.steps[1][3]);
    const int count = static_cast<int>(across.reader(column, true) - low);
    taps.keep(e, count), taps.all = taps.all && count == TAPS;
#pragma unroll
    for (int k = 0; k < TAPS; ++k) {
      taps.weights[e][k] = k < count ? static_cast<A>(across.weight(across.at(low + k), column)) : A(0);
    }
  }
  const auto beyond = [&](int e, int k) {
    return static_cast<A>(across.weight(across.at(readers[e] + k), min(own.column + e, across.in - 1)));
  };
  const T* const dy = source + own.begin(p, 1);
  T* const dx = target + own.begin(p, 0) + own.column * p.steps[0][3];
  A sums[4][N];
#pragma unroll
  for (int s = 0; s < 4; ++s) {
#pragma unroll
    for (int e = 0; e < N; ++e) sums[s][e] = A(0);
  }
  i64 base = begin;  // the row of sums[0]
  const auto hand = [&](i64 until) {
#pragma unroll 1
    for (; base < until; ++base) {
      if (base >= begin && own.there) own.write(dx + base * p.steps[0][2], p.steps[0][3], sums[0]);
#pragma unroll
      for (int s = 0; s < 4; ++s) {
#pragma unroll
        for (int e = 0; e < N; ++e) sums[s][e] = s < 3 ? sums[s < 3 ? s + 1 : 3][e] : A(0);
      }
    }
  };
#pragma unroll 1
  for (i64 start = from; start < to; start += walk_most) {
    const int many = static_cast<int>(min<i64>(walk_most, to - start));
    __syncthreads();
    for (int k = static_cast<int>(threadIdx.x); k < many; k += planes_threads) {
      rows[k] = WalkTaps<A>::of(down, start + k);
    }
    __syncthreads();
    if (start == from) base = min(begin, static_cast<i64>(rows[0].first));
#pragma unroll 1
    for (int r = 0; r < many; ++r) {
      hand(rows[r].first);
      if (!own.there) continue;
      A row[N];
      const T* const line = dy + (start + r) * p.steps[1][2];
      if (start + r + walk_ahead < to) prefetch_l2(line + walk_ahead * p.steps[1][2] + taps.first[0]);
      if (taps.all) taps.template row<true>(line, 1, row, beyond);
      else taps.template row<false>(line, p.steps[1][3], row, beyond);
#pragma unroll
      for (int s = 0; s < 4; ++s) {
        if (s >= rows[r].count) continue;
        const A w = rows[r].weights[s];
#pragma unroll
        for (int e = 0; e < N; ++e) sums[s][e] = math::fma(w, row[e], sums[s][e]);
      }
    }
  }
  hand(end);
}

}  // namespace baracuda
