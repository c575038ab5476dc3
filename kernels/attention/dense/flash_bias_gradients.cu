// flash_bias_gradients    dmask, dslopes and dsinks without tensor cores: see flash_bias_gradients.cuh. A score is
//   chains of fma over 32 columns, added in order; an element of a tile is summed over the steps in order.
#include "flash_bias_gradients.cuh"

namespace baracuda {

template <class T, class P> BARACUDA_D void flash_bias_gradient(const P& p) {
  using namespace attention;
  using A = acc_t<T>;
  constexpr int D = 32;  // columns are staged in chunks, whatever head_dim is
  using B = BackwardTile<A, D>;
  constexpr int R = B::R;
  BARACUDA_DYNAMIC_SMEM(A, staging);  // at the end the sums
  const Share share(p);
  Pairs<2, A, P> pairs(p);

  A sum[R][4];
  clear(sum);
  ScoreTile<B::rows> at;
#pragma unroll 1
  for (i64 step = share.step; at.find(p, share, step); ++step) {
    const T* const q = at.template queries<T>(p.q, p.stride[0]);
    const T* const k = at.template keys<T>(p.k, p.stride[1]);
    const T* const v = at.template keys<T>(p.v, p.stride[2]);
    const T* const dy = at.template queries<T>(p.dy, p.stride[3]);
    const A* const delta = static_cast<const A*>(p.delta) + at.row(p);
    const int i0 = at.q0 + thread_row(), j0 = at.k0 + thread_col();
    pairs.enter(at.b, at.h);
    A weight[R][4], s[R][4];
    Operands<T> operands{q, p.stride[0][2], at.rows, p.wide & 1, k, p.stride[1][2], at.left, p.wide & 2, p.d_k};
    product<D, true>(s, staging, operands);
#pragma unroll
    for (int i = 0; i < R; ++i) {
      const int r = thread_row() + 8 * i;
      const auto base = r < at.rows ? RowBase<A>::of(p, at.row(p) + r) : RowBase<A>{};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        A through;
        pairs.weight(weight[i][j], through, s[i][j], i0 + 8 * i, j0 + 16 * j, base);
        if (r >= at.rows || !at.sees(r, thread_col() + 16 * j)) weight[i][j] = A(-0.0);
        if (p.distance) weight[i][j] = at_distance(p, weight[i][j], i0 + 8 * i, j0 + 16 * j);
      }
    }
    operands = {dy, p.stride[3][2], at.rows, p.wide & 8, v, p.stride[2][2], at.left, p.wide & 4, p.d_v};
    product<D, true>(s, staging, operands);
#pragma unroll
    for (int i = 0; i < R; ++i) {
      const int r = thread_row() + 8 * i;
      const A own = r < at.rows ? delta[r] : A(0);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (pairs.drops()) s[i][j] *= pairs.kept(i0 + 8 * i, j0 + 16 * j) ? pairs.again : A(0);
        add_ds(sum[i][j], weight[i][j], s[i][j], own);
      }
    }
  }
  __syncthreads();
  put_scores<R>(staging, sum);
  __syncthreads();
  put_share<B::rows, threads>(p, share, staging);
}

}  // namespace baracuda
