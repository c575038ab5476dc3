#pragma once
// flash_lse_rests    rest[i] = log (exp(sinks[h] - lse[i]) + sum_j exp(s[i,j] - lse[i])), of rows with a large lse
//
// What a row's lse lacks of the log of its sum: biases such as the lowest float take all digits of it, and the sum is
// then only known from the scores (above_sum in lse_rests.cuh). A block takes a tile of queries of one head, in the
// accumulator whatever the element, and ends at once where no row of them has such an lse. Else it walks the keys in
// tiles of 64 with the online softmax (Milakov and Gimelshein 2018). A score is chains of fma over 32 columns, added in
// order; a sum is that of a thread's four keys of each tile, then over tiles, then over 16 threads: the order is fixed
// by where tiles start.
#include "attention/dense/flash_bias_gradients.cuh"

namespace baracuda {

template <class T, int LEVEL, class P> BARACUDA_D void flash_lse_rests(const P& p) {
  using namespace attention;
  using A = acc_t<T>;
  constexpr int D = 32;  // columns are staged in chunks, whatever head_dim is
  using B = BackwardTile<A, D>;
  constexpr int R = B::R;
  BARACUDA_DYNAMIC_SMEM(A, staging);
  const Share share(p);
  ScoreTile<B::rows> at;
  i64 step = share.step;
  bool more = at.find(p, share, step), large = false;
  if (!more) return;
  const i64 row0 = at.row(p) + thread_row();
  const A* const lse = static_cast<const A*>(p.lse) + row0;
#pragma unroll
  for (int i = 0; i < R; ++i) large |= thread_row() + 8 * i < at.rows && has_rest(lse[8 * i]);
  if (!__syncthreads_or(large)) return;

  Pairs<LEVEL, A, P> pairs(p);
  pairs.enter(at.b, at.h);
  const A none = -numeric<A>::infinity(), sink = p.sinks == nullptr ? none : static_cast<const A*>(p.sinks)[at.h];
  A top[R], sum[R];
#pragma unroll
  for (int i = 0; i < R; ++i) top[i] = sink, sum[i] = sink != none && thread_col() == 0 ? A(1) : A(0);
#pragma unroll 1
  for (; more; ++step, more = at.find(p, share, step)) {
    const T* const q = at.template queries<T>(p.q, p.stride[0]);
    const T* const k = at.template keys<T>(p.k, p.stride[1]);
    const int i0 = at.q0 + thread_row(), j0 = at.k0 + thread_col();
    A s[R][4];
    const Operands<T> operands{q, p.stride[0][2], at.rows, p.wide & 1, k, p.stride[1][2], at.left, p.wide & 2, p.d_k};
    product<D, true>(s, staging, operands);
#pragma unroll
    for (int i = 0; i < R; ++i) {
      const int r = thread_row() + 8 * i;
      A high = top[i];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const A made = pairs.score(s[i][j], i0 + 8 * i, j0 + 16 * j);
        s[i][j] = r < at.rows && at.sees(r, thread_col() + 16 * j) ? made : none;
        high = math::maximum(high, s[i][j]);
      }
      high = group_reduce<Max, 16>(high);
      const A base = high == none ? A(0) : high;
      sum[i] *= exp2_fast((top[i] - base) * log2_e<A>);
      top[i] = high;
#pragma unroll
      for (int j = 0; j < 4; ++j) sum[i] += exp2_fast((s[i][j] - base) * log2_e<A>);
    }
  }
#pragma unroll
  for (int i = 0; i < R; ++i) {
    const A total = group_reduce<Sum, 16>(sum[i]);
    if (thread_col() != 0 || thread_row() + 8 * i >= at.rows || !has_rest(lse[8 * i])) continue;
    const A rest = (top[i] - lse[8 * i]) + math::log(total);
    static_cast<A*>(p.rests)[row0 + 8 * i] = math::isfinite(lse[8 * i]) ? rest : A(0);
  }
}

}  // namespace baracuda
