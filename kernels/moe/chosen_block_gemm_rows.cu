// chosen_block_gemm_rows   products of the experts that few tokens chose, of f16 or bf16, by weights as they are stored:
//                          tiles of quant_gemm/block_gemm_rows.cuh, which says what fixes the order of sums, of 32
//                          columns and 8 slots, whose rows of x are read where they stand.
#include "moe/chosen_block_gemm.cuh"
#include "quant_gemm/block_gemm_rows.cuh"

namespace baracuda {

template <class F, class T> BARACUDA_D void chosen_block_gemm_rows(const ChosenBlockGemmParams& p) {
  constexpr int columns = block_gemm_columns(8);
  BARACUDA_DYNAMIC_SMEM(float, shared);
  moe::chosen_tiles<T, columns>(p, [&](const auto& own, const Stored& stored, i64 expert, const auto& row_of) {
    BlockGemmRowsTile<1, 8> tile(own, 0);
    tile.m0 = 0, tile.n0 = own.n0, tile.batch = expert;
    BlockGemmRows<F, T, 1, 8, ChosenProduct<T>> product(own, stored, tile, shared);
    product.x_row[0] = row_of(lane_id() / 4) * static_cast<u32>(p.x_steps[1]);
    product.run();
  });
}

}  // namespace baracuda
