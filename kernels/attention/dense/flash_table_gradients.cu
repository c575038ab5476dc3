// flash_table_gradients    gradients of the tables of a score's formula:
//   dt[index(b, h, i, j)] += ds[i,j] ∂s/∂t,   ds[i,j] = p[i,j] (keep dy[i] v[j] - delta[i]),   p[i,j] = exp(s[i,j] - lse[i])
//
// Any pair may add to any element, so that elements are sums in fixed point (exact_sum.cuh): exact until they are rounded
// at the end, in whatever order blocks add. A block takes tiles of scores of one head and its queries, in the accumulator
// whatever the element; a score is chains of fma over 32 columns, added in order. What lies outside a table adds nothing.
#include <baracuda/exact_sum.cuh>

#include "attention/dense/flash_bias_gradients.cuh"
#include "attention/dense/score_formula_pairs.cuh"

namespace baracuda {

template <class T, class P> BARACUDA_D void flash_table_gradient(const P& p) {
  using namespace attention;
  using A = acc_t<T>;
  constexpr int D = 32;  // columns are staged in chunks, whatever head_dim is
  using B = BackwardTile<A, D>;
  constexpr int R = B::R;
  BARACUDA_DYNAMIC_SMEM(A, staging);
  const Share share(p);
  Pairs<3, A, P> pairs(p);
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
    A weight[R][4], score[R][4], s[R][4];  // score: what the formula takes
    Operands<T> operands{q, p.stride[0][2], at.rows, p.wide & 1, k, p.stride[1][2], at.left, p.wide & 2, p.d_k};
    product<D, true>(score, staging, operands);
#pragma unroll
    for (int i = 0; i < R; ++i) {
      const int r = thread_row() + 8 * i;
      const auto base = r < at.rows ? RowBase<A>::of(p, at.row(p) + r) : RowBase<A>{};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        A through;
        pairs.weight(weight[i][j], through, score[i][j], i0 + 8 * i, j0 + 16 * j, base);
        if (r >= at.rows || !at.sees(r, thread_col() + 16 * j)) weight[i][j] = A(-0.0);
        const A x = score[i][j] * pairs.sign;
        score[i][j] = (pairs.capped() ? pairs.squash(x) : x) * pairs.unit;
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
        if (is_hidden(weight[i][j])) continue;
        if (pairs.drops()) s[i][j] *= pairs.kept(i0 + 8 * i, j0 + 16 * j) ? pairs.again : A(0);
        const A ds = weight[i][j] * (s[i][j] - own);
        pairs.formula.spread(score[i][j], pairs.batch, pairs.head, i0 + 8 * i, j0 + 16 * j,
                             [&](const void* wanted, void* sums, i64 place, A slope) {
                               if (wanted == nullptr || place < 0) return;
                               ExactSum<A>::add(static_cast<u64*>(sums) + place * ExactSum<A>::words, ds * slope);
                             });
      }
    }
  }
}

// Words of 0.
template <class P> BARACUDA_D void flash_table_clear(const P& p) {
  const i64 step = static_cast<i64>(gridDim.x) * blockDim.x;
  for (i64 n = blockIdx.x * static_cast<i64>(blockDim.x) + threadIdx.x; n < p.words; n += step) {
    static_cast<u64*>(p.sums)[n] = 0;
  }
}

// An element of a table's gradient a thread.
template <class T, class P> BARACUDA_D void flash_table_finish(const P& p) {
  using A = acc_t<T>;
  const i64 n = blockIdx.x * static_cast<i64>(blockDim.x) + threadIdx.x;
  if (n >= p.elements) return;
  u64 rest = static_cast<u64>(n), index;
  i64 at = 0;
#pragma unroll
  for (int axis = 3; axis >= 0; --axis) {
    rest = divmod(rest, static_cast<u64>(p.shape[axis]), index);
    at += static_cast<i64>(index) * p.out_stride[axis];
  }
  const A sum = ExactSum<A>::value(static_cast<u64*>(p.sums) + n * ExactSum<A>::words);
  attention::with_kind<double>(p.out_kind, [&](auto kind) {
    using Out = decltype(kind);
    static_cast<Out*>(p.out)[at] = cast<Out>(sum);
  });
}

}  // namespace baracuda
