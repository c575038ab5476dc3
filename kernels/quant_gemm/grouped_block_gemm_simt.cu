// grouped_block_gemm_simt   y[r] = x[r] W[e]ᵀ + bias[e] for the rows r of each expert e, by weights as they are stored, in
//                           float: a warp has a row of W and 8 rows of x, in the order of sums of
//                           quant_gemm/block_gemm_simt.cuh. A block walks the tiles that the offsets make.
#include "quant_gemm/block_gemm_simt.cuh"
#include "quant_gemm/grouped_block_gemm.cuh"

namespace baracuda {

template <class F, class T, class P> BARACUDA_D void grouped_block_gemm_simt(const P& p) {
  constexpr int rows = block_gemm_simt_rows, columns = block_gemm_simt_warps;
  const Stored w(p);
  expert_tiles<rows, columns, columns * warp_size>(
      p,
      [&](const GroupTile& at) {
        const i64 n = at.n0 + threadIdx.x / warp_size;
        if (n >= p.n) return;
        const T* const x = static_cast<const T*>(p.x) + at.m0 * p.x_step;
        const int left = static_cast<int>(min<i64>(rows, at.end - at.m0));
        block_gemm_simt_row<F>(w, StoredRow(w, at.group, n), p.k, x, p.x_step, left,
                               [&](int r, float sum) { put_expert_sum<T>(p, at.group, at.m0 + r, n, sum); });
      },
      [&](const GroupTile& at) { put_no_expert<T, rows, columns>(p, at); });
}

}  // namespace baracuda
