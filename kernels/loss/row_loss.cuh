#pragma once
// row_loss   how a group of G threads walks a row: chunk c of 16 bytes belongs to thread c % G, whose sums are merged
// neighbours first. G follows from the row's length alone, so a row's bits depend on nothing but its elements.
#include <baracuda/reduce.cuh>
#include <baracuda/rows.cuh>
#include "loss/row_kinds.cuh"
#include "softmax/row_groups.cuh"

namespace baracuda {

// Over a warp, neighbours first; a kind's merge may depend on the row.
template <class K, class S> BARACUDA_D S merged_lanes(const K& kind, S x) {
#pragma unroll
  for (int mask = 1; mask < warp_size; mask *= 2) {
    const S other = shuffle_xor(x, mask);
    x = lane_id() & mask ? kind.merge(other, x) : kind.merge(x, other);
  }
  return x;
}

// Over the G threads of a group: 1, a warp, or the block. Every thread of the block calls and gets its group's state.
template <int G, class K, class S> BARACUDA_D S merged(const K& kind, S x) {
  if constexpr (G == 1) return x;
  x = merged_lanes(kind, x);
  if constexpr (G > warp_size) {
    constexpr int warps = G / warp_size;
    __shared__ __align__(16) unsigned char scratch[warps * sizeof(S)];
    S* const parts = reinterpret_cast<S*>(scratch);
    if (lane_id() == 0) parts[threadIdx.x / warp_size] = x;
    __syncthreads();
    x = parts[0];
#pragma unroll 1
    for (int w = 1; w < warps; ++w) x = kind.merge(x, S(parts[w]));
  }
  return x;
}

// Operand n at columns col …, in the accumulator's type; 0 beyond the row's end.
template <class T, class P>
BARACUDA_D Vec<acc_t<T>, row_vec<T>> row_columns(const LossRow<T, P>& row, int n, i64 col, i64 left) {
  constexpr int V = row_vec<T>;
  if (row.p.wide && left >= V) return to_acc(load<V>(row.x[n] + col));
  return to_acc(load_strided<T, V>(row.x[n] + col * row.p.step[n], row.p.step[n], left));
}

// f(col, x, k) for the calling thread's columns of a row from chunk `start` on, in order: x[n] is operand n there, k the
// place in the chunk; end(col, left) after each chunk.
template <int G, int N, class T, class P, class F, class End>
BARACUDA_D void walk_row(const LossRow<T, P>& row, const F& f, const End& end, i64 start = threadIdx.x % G) {
  using A = acc_t<T>;
  constexpr int V = row_vec<T>;
  const i64 cols = row.p.cols;
#pragma unroll 1
  for (i64 col = start * V; col < cols; col += G * V) {
    const i64 left = cols - col;
    Vec<A, V> chunk[N > 0 ? N : 1];
#pragma unroll
    for (int n = 0; n < N; ++n) chunk[n] = row_columns(row, n, col, left);
#pragma unroll
    for (int k = 0; k < V; ++k) {
      A x[N > 0 ? N : 1] = {};
#pragma unroll
      for (int n = 0; n < N; ++n) x[n] = chunk[n][k];
      if (k < left) f(col + k, x, k);
    }
    end(col, left);
  }
}

// The same for whole chunks of dense rows, of which two of each operand are on their way at once; the chunk it ends at.
template <int G, int N, class T, class P, class F> BARACUDA_D i64 walk_dense(const LossRow<T, P>& row, const F& f) {
  using A = acc_t<T>;
  constexpr int V = row_vec<T>, depth = 2;
  i64 chunk = threadIdx.x % G;
  if (!row.p.wide) return chunk;
#pragma unroll 1
  for (; (chunk + (depth - 1) * G + 1) * V <= row.p.cols; chunk += depth * G) {
    RowChunk<T> taken[depth][N];
#pragma unroll
    for (int d = 0; d < depth; ++d) {
#pragma unroll
      for (int n = 0; n < N; ++n) taken[d][n] = load<V>(row.x[n] + (chunk + d * G) * V);
    }
#pragma unroll
    for (int d = 0; d < depth; ++d) {
#pragma unroll
      for (int k = 0; k < V; ++k) {
        A x[N];
#pragma unroll
        for (int n = 0; n < N; ++n) x[n] = to_acc(taken[d][n][k]);
        f((chunk + d * G) * V + k, x, k);
      }
    }
  }
  return chunk;
}

// The row whose operands and labels are at these offsets, and whose target at that.
template <class T, class P> BARACUDA_D LossRow<T, P> row_of(const P& p, const i64* at, i64 target) {
  const void* const from[row_operands] = {p.x, p.other, p.negative};
  LossRow<T, P> row{p, {}, nullptr, target};
#pragma unroll
  for (int n = 0; n < row_operands; ++n)
    row.x[n] = from[n] == nullptr ? nullptr : static_cast<const T*>(from[n]) + at[n];
  const i64 labels = at[row_operands] * (p.wide_targets ? 8 : 4);
  if (p.labels != nullptr) row.labels = static_cast<const unsigned char*>(p.labels) + labels;
  return row;
}

template <int G, class K, class T, class P>
BARACUDA_D typename K::State row_state(const K& kind, const LossRow<T, P>& row, bool exists) {
  typename K::State s{};
  if constexpr (K::operands > 0) {
    if (exists) {
      const auto add = [&](i64 col, const acc_t<T>* x, int) { kind.add(s, col, x); };
      i64 rest = threadIdx.x % G;
      if constexpr (K::operands > 1) rest = walk_dense<G, K::operands>(row, add);
      walk_row<G, K::operands>(row, add, [](i64, i64) {}, rest);
    }
    s = merged<G>(kind, s);
  }
  return s;
}

}  // namespace baracuda
