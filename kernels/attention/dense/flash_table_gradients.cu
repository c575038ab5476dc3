// flash_table_gradients    gradients of the tables of a score's formula:
//   dt[index(b, h, i, j)] += ds[i,j] ∂s/∂t,   ds[i,j] = p[i,j] (keep dy[i] v[j] - delta[i]),   p[i,j] = exp(s[i,j] - lse[i])
//
// Any pair may add to any element, so that elements are sums in fixed point (exact_sum.cuh): exact until they are rounded
// at the end, in whatever order blocks add. A block takes tiles of scores of one head and its queries, in the accumulator
// whatever the element, and walks them as flash_bias_gradient does. What lies outside a table adds nothing.
#include <baracuda/exact_sum.cuh>

#include "attention/dense/flash_bias_gradients.cuh"
#include "attention/dense/score_formula_pairs.cuh"

namespace baracuda {
namespace attention {

// Adds ds times the score's derivative by each element of a table to that element's sum.
template <class A, int R> struct TableSums {
  static constexpr int LEVEL = 3;
  A score[R][4];  // what the formula takes

  template <class Pairs> BARACUDA_D void keep(const Pairs& pairs, int n, int e, A&, A product, int, int) {
    const A x = product * pairs.sign;
    score[n][e] = (pairs.capped() ? pairs.squash(x) : x) * pairs.unit;
  }
  template <class Pairs> BARACUDA_D void add(const Pairs& pairs, int n, int e, A weight, A x, int i, int j) const {
    const A ds = weight * x;
    pairs.formula.spread(score[n][e], pairs.batch, pairs.head, i, j,
                         [&](const void* wanted, void* sums, i64 place, A slope) {
                           if (wanted == nullptr || place < 0) return;
                           ExactSum<A>::add(static_cast<u64*>(sums) + place * ExactSum<A>::words, ds * slope);
                         });
  }
};

}  // namespace attention

template <class T, class P> BARACUDA_D void flash_table_gradient(const P& p) {
  using namespace attention;
  using A = acc_t<T>;
  BARACUDA_DYNAMIC_SMEM(A, staging);
  const Share share(p);
  TableSums<A, BackwardTile<A, 32>::R> sums;
  walk_scores<T>(p, share, staging, sums);
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
