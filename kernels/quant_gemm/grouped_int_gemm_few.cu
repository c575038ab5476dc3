// grouped_int_gemm_few   products of a few rows of each expert, integers of 8 bits with k along memory, with the epilogue
//                        of quant_gemm/epilogue.cuh: tiles of quant_gemm/int_few.cuh. A block walks the tiles that the
//                        offsets make.
#include "quant_gemm/grouped_int_gemm.cuh"
#include "quant_gemm/int_few.cuh"

namespace baracuda {

template <IntGemm KIND, class P> BARACUDA_D void grouped_int_gemm_few(const P& p) {
  const i64 a_step = p.strides[int_matrix::a][0], b_step = p.strides[int_matrix::b][1];
  expert_tiles<int_few_rows, int_few_columns, int_few_threads>(
      p,
      [&](const GroupTile& at) {
        const IntEpilogue<KIND, P> epilogue(p, at.group);
        const u8* const matrix = static_cast<const u8*>(p.b) + epilogue.begin.at[int_matrix::b];
        const ByteRows a{static_cast<const u8*>(p.a) + at.m0 * a_step, a_step, at.end - at.m0};
        const ByteRows b{matrix + at.n0 * b_step, b_step, p.n - at.n0};
        int_few_tile<i8, i8>(a, b, p.k,
                             [&](int row, const auto& sums) { epilogue.row(at.m0 + row, at.n0, p.n - at.n0, sums); });
      },
      [&](const GroupTile& at) { put_no_integers<int_few_rows, int_few_columns>(p, at); });
}

}  // namespace baracuda
