// flash_bias_gradients    dmask, dslopes and dsinks without tensor cores: see flash_bias_gradients.cuh. A score is
//   chains of fma over 32 columns, added in order; an element of a tile is summed over the steps in order.
#include "flash_bias_gradients.cuh"

namespace baracuda {
namespace attention {

// Sums of ds, or for slopes of ds times minus the distance, of a thread's pairs of a tile of the gradient.
template <class A, int R> struct BiasSums {
  static constexpr int LEVEL = 2;
  A sum[R][4];

  template <class Pairs> BARACUDA_D void keep(const Pairs& pairs, int, int, A& weight, A, int i, int j) const {
    if (pairs.p.distance) weight = at_distance(pairs.p, weight, i, j);
  }
  template <class Pairs> BARACUDA_D void add(const Pairs&, int n, int e, A weight, A x, int, int) {
    sum[n][e] = math::fma(weight, x, sum[n][e]);
  }
};

}  // namespace attention

template <class T, class P> BARACUDA_D void flash_bias_gradient(const P& p) {
  using namespace attention;
  using A = acc_t<T>;
  using B = BackwardTile<A, 32>;
  BARACUDA_DYNAMIC_SMEM(A, staging);  // at the end the sums
  const Share share(p);
  BiasSums<A, B::R> sums;
  clear(sums.sum);
  walk_scores<T>(p, share, staging, sums);
  __syncthreads();
  put_scores<B::R>(staging, sums.sum);
  __syncthreads();
  put_share<B::rows, threads>(p, share, staging);
}

}  // namespace baracuda
