#pragma once
// rows       addressing for row ops: one row's start in every operand, and elements within a strided row.
//
// P is a parameter struct with the fields of `schedules/rows.py: row_params`.
#include <baracuda/index.cuh>

namespace baracuda {

// Element offsets of row `row` in each of N operands.
template <int N, class P> BARACUDA_D void row_offsets(const P& p, i64 row, i64 (&out)[N]) {
  if (p.outer_rank <= 1) {  // rows merged to one axis: no division
#pragma unroll
    for (int n = 0; n < N; ++n) out[n] = p.outer_rank == 0 ? 0 : row * p.outer[n][0];
  } else {
    offsets<i64, N>(row, p.outer_rank, p.outer_shape, p.outer, out);
  }
}

// Offset of column `col` within a row of operand `n`. DENSE rows have stride 1 in every operand.
template <bool DENSE, class P> BARACUDA_D i64 column_offset(const P& p, int n, i64 col) {
  if constexpr (DENSE) return col;
  else if (p.inner_rank <= 1) return p.inner_rank == 0 ? 0 : col * p.inner[n][0];
  else return offset<i64>(col, p.inner_rank, p.inner_shape, p.inner[n]);
}

}  // namespace baracuda
