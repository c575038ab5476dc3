#pragma once
// sums       what forward and backward norms share: sums over the lanes of a row, and the weight at a chunk's columns.
#include <baracuda/reduce.cuh>
#include <baracuda/rows.cuh>

namespace baracuda::norm {

template <class A> struct Pair {
  A a, b;
};
struct SumPair {
  static constexpr bool symmetric = true;
  template <class A> static BARACUDA_D Pair<A> apply(Pair<A> x, Pair<A> y) { return {x.a + y.a, x.b + y.b}; }
};

// Over the LANES threads of a row: part of a warp, or the whole block. `board` has LANES / 32 values in shared memory.
// There is one barrier, after the board is written: it may be written again past the next barrier.
template <class Op, int LANES, class V> BARACUDA_D V lanes_reduce(V x, V* board) {
  if constexpr (LANES <= warp_size) {
    return group_reduce<Op, LANES>(x);
  } else {
    constexpr int warps = LANES / warp_size;
    x = warp_reduce<Op>(x);
    if (lane_id() == 0) board[threadIdx.x / warp_size] = x;
    __syncthreads();
    return group_reduce<Op, warps>(V(board[lane_id() % warps]));  // each warp repeats the last steps of the tree
  }
}

template <class T> BARACUDA_D Vec<acc_t<T>, vec_elems<T>> widen_chunk(const Chunk& c) { return to_acc(unpack<T>(c)); }

// Weights of element W at the columns of one chunk of T.
template <class T, class W, bool WIDE, class P, class L>
BARACUDA_D Vec<acc_t<T>, vec_elems<T>> load_weights(const P& p, int n, const void* from, i64 col, L left) {
  constexpr int VEC = vec_elems<T>;
  const W* const w = static_cast<const W*>(from);
  if constexpr (!WIDE) return to_acc(load_columns<W, VEC, Access::readonly>(p, n, w, col, left));
  if (left > 0) return to_acc(load_readonly<VEC>(w + col));
  return {};
}

// What is added to every weight: rms_norm may have weights that are learned as differences from 1.
template <bool CENTER, class P, class A, int N> BARACUDA_D void shift_weights(const P& p, Vec<A, N>& weight) {
  if constexpr (!CENTER) {
    const A offset = static_cast<A>(p.weight_offset);
#pragma unroll
    for (int k = 0; k < N; ++k) weight[k] += offset;
  }
}

}  // namespace baracuda::norm
