// multi_gemm     alpha · a b for every pair of a list of matrices, any strides, without tensor cores.
//
// Tiles of 64 x 64 are numbered across the list (baracuda/multi_tensor.cuh). Each sum is one chain of fused multiply-adds
// in the order of k, so that a product has the same bits alone and in any list.
#include "gemm/tile.cuh"
#include <baracuda/multi_tensor.cuh>

namespace baracuda {

struct OneOfMany {
  const i64 (&strides)[3][2];
  const i64 m, n, k;
  const int a_cols_dense, b_cols_dense;
};

template <class T, class U, class P> BARACUDA_D void multi_gemm(const P& p) {
  using A = acc_t<T>;
  const int which = find_tensor(p, static_cast<int>(blockIdx.x)), tile = static_cast<int>(blockIdx.x) - p.first[which];
  const i64* const size = p.sizes[which];
  const OneOfMany one{p.strides[which], size[0], size[1], size[2], p.dense[which] & 1, p.dense[which] >> 1};
  const i64 across = div_up(one.n, i64(GemmTile::size));
  const A alpha = static_cast<A>(p.alpha());
  U* const y = static_cast<U*>(p.y[which]);
  const T* const b[1] = {static_cast<const T*>(p.b[which])};
  gemm_tile<0>(one, GemmTile(tile / across * GemmTile::size, tile % across * GemmTile::size),
               static_cast<const T*>(p.a[which]), b, alpha != A(0), [&](i64 m, i64 n, const A(&sum)[1]) {
                 y[m * one.strides[2][0] + n * one.strides[2][1]] = from_acc<U>(alpha * sum[0]);
               });
}

}  // namespace baracuda
