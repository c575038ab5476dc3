// block_gemm_rows   y = x Wᵀ + bias by stored weights that are read once for up to 32 rows of x: a block has a tile of
//                   quant_gemm/block_gemm_rows.cuh, which says what fixes the order of sums.
#include "quant_gemm/block_gemm_rows.cuh"

namespace baracuda {

template <class F, class T, int NT, class P> BARACUDA_D void block_gemm_rows(const P& p) {
  constexpr int rows = block_gemm_rows_m<NT>, columns = block_gemm_rows_n<NT>;
  const BlockGemmTile<rows, columns> at(p);
  const BlockGemmRows<T> tile{static_cast<const T*>(p.x) + at.batch * p.x_steps[0] + at.m0 * p.x_steps[1],
                              p.x_steps[1],
                              at.batch,
                              at.n0,
                              static_cast<int>(min<i64>(rows, p.m - at.m0)),
                              static_cast<int>(min<i64>(columns, p.n - at.n0))};
  block_gemm_rows_tile<F, T, NT>(p, Stored(p), tile, [&](int row, int column, float sum) {
    put_sum<T>(p, at.batch, at.m0 + row, at.n0 + column, sum);
  });
}

}  // namespace baracuda
