// dense_gemm    y = alpha * a b + beta * c, for any strides: the row for layouts that cuBLAS does not take.
//
// A block for each 64 x 64 tile; each output is one chain of fma in the order of k (tile.cuh).
#include "gemm/tile.cuh"

namespace baracuda {

template <class T, class U> BARACUDA_D void dense_gemm(const DenseGemmParams& p) {
  using A = acc_t<T>;
  const GemmTile tile(p);
  i64 at[4];
  offsets<i64, 4>(tile.batch, p.batch_rank, p.batch_shape, p.batch, at);
  const U* c = p.c == nullptr ? nullptr : static_cast<const U*>(p.c) + at[2];
  gemm_tile(p, tile, static_cast<const T*>(p.a) + at[0], static_cast<const T*>(p.b) + at[1], c,
            static_cast<U*>(p.y) + at[3], static_cast<A>(p.alpha()), static_cast<A>(p.beta()));
}

}  // namespace baracuda
