// int_gemm_few   products of at most 16 rows of integers of 8 bits with the epilogue of quant_gemm/epilogue.cuh: a block
//                takes 8 columns of b (quant_gemm/int_few.cuh).
#include "quant_gemm/int_few.cuh"

namespace baracuda {

template <class TA, class TB, IntGemm KIND> BARACUDA_D void int_gemm_few(const IntGemmParams& p) {
  const i64 blocks = div_up(p.n, int_few_columns), n0 = blockIdx.x % blocks * int_few_columns;
  const IntEpilogue<KIND, IntGemmParams> epilogue(p, blockIdx.x / blocks);
  const i64 a_step = p.strides[int_matrix::a][0], b_step = p.strides[int_matrix::b][1];
  const ByteRows a{static_cast<const u8*>(p.a) + epilogue.begin.at[int_matrix::a], a_step, p.m};
  const ByteRows b{static_cast<const u8*>(p.b) + epilogue.begin.at[int_matrix::b] + n0 * b_step, b_step, p.n - n0};
  int_few_tile<TA, TB>(a, b, p.k, [&](int row, const auto& sums) { epilogue.row(row, n0, p.n - n0, sums); });
}

}  // namespace baracuda
