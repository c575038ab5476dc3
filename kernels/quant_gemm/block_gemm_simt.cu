// block_gemm_simt   y = x Wᵀ + bias by stored weights, in float. A warp has a row of W and 8 rows of x, in the order of sums
//                   of quant_gemm/block_gemm_simt.cuh.
#include "quant_gemm/block_gemm_simt.cuh"

namespace baracuda {

template <class F, class T, class P> BARACUDA_D void block_gemm_simt(const P& p) {
  constexpr int rows = block_gemm_simt_rows;
  const BlockGemmTile<rows, block_gemm_simt_warps> tile(p);
  const i64 n = tile.n0 + threadIdx.x / warp_size;
  if (n >= p.n) return;
  const Stored w(p);
  const T* const x = static_cast<const T*>(p.x) + tile.batch * p.x_steps[0] + tile.m0 * p.x_steps[1];
  const int left = static_cast<int>(min<i64>(rows, p.m - tile.m0));
  block_gemm_simt_row<F>(w, StoredRow(w, tile.batch, n), p.k, x, p.x_steps[1], left,
                         [&](int r, float sum) { put_sum<T>(p, tile.batch, tile.m0 + r, n, sum); });
}

}  // namespace baracuda
