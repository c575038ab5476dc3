// syrk       y = alpha · a aᵀ + beta · c for any strides, without tensor cores.
//
// A block computes a tile of 64 x 64 on or below the diagonal (gemm/syrk.cuh). Each sum is one chain of fused
// multiply-adds in the order of k (gemm/tile.cuh).
#include "gemm/syrk.cuh"
#include "gemm/tile.cuh"

namespace baracuda {

template <class T, class U> BARACUDA_D void syrk(const SyrkParams& p) {
  using A = acc_t<T>;
  u64 number;
  const u64 batch = divmod(static_cast<u64>(blockIdx.x), static_cast<u64>(p.tiles), number);
  const LowerTile<GemmTile::size, GemmTile::size> at(p, static_cast<u32>(number));
  const SyrkOffsets begin(p, static_cast<i64>(batch));
  const SyrkResult<U, A, SyrkParams> result(p, begin);
  const T* const a = static_cast<const T*>(p.a) + begin.at[0];
  const T* const b[1] = {a};
  const GemmTile tile(static_cast<i64>(at.m) * GemmTile::size, static_cast<i64>(at.n) * GemmTile::size);
  gemm_tile<0>(p, tile, a, b, result.alpha != A(0), [&](i64 m, i64 n, const auto& sums) {
    if (n > m) return;
    Vec<A, 1> sum;
    sum[0] = sums[0];
    const auto x = result.of(m, n, 1, sum);
    result.below(m, n, 1, x);
    result.above(m, n, 1, x);
  });
}

}  // namespace baracuda
