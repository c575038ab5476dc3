// grouped_block_gemm_rows   y[r] = x[r] W[e]ᵀ + bias[e] for the rows r of each expert e, by weights as they are stored, of
//                           f16 or bf16: tiles of quant_gemm/block_gemm_rows.cuh, which says what fixes the order of
//                           sums. A block walks the tiles that the offsets make.
#include "quant_gemm/block_gemm_rows.cuh"
#include "quant_gemm/grouped_block_gemm.cuh"

namespace baracuda {

template <class F, class T, int NT, class P> BARACUDA_D void grouped_block_gemm_rows(const P& p) {
  constexpr int rows = block_gemm_rows_m<NT>, columns = block_gemm_rows_n<NT>;
  const Stored stored(p);
  expert_tiles<rows, columns, block_gemm_threads>(
      p,
      [&](const GroupTile& at) {
        const BlockGemmRows<T> tile{static_cast<const T*>(p.x) + at.m0 * p.x_step,
                                    p.x_step,
                                    at.group,
                                    at.n0,
                                    static_cast<int>(min<i64>(rows, at.end - at.m0)),
                                    static_cast<int>(min<i64>(columns, p.n - at.n0))};
        block_gemm_rows_tile<F, T, NT>(p, stored, tile, [&](int row, int column, float sum) {
          put_expert_sum<T>(p, at.group, at.m0 + row, at.n0 + column, sum);
        });
      },
      [&](const GroupTile& at) { put_no_expert<T, rows, columns>(p, at); });
}

}  // namespace baracuda
