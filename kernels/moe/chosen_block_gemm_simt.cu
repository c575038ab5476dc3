// chosen_block_gemm_simt   products of the experts that few tokens chose, in float, by weights as they are stored: tiles of
//                          quant_gemm/block_gemm_simt.cuh, which says what fixes the order of sums, a slot at a time.
#include "moe/chosen_block_gemm.cuh"
#include "quant_gemm/block_gemm_simt.cuh"

namespace baracuda {

template <class F, class T> BARACUDA_D void chosen_block_gemm_simt(const ChosenBlockGemmParams& p) {
  moe::chosen_tiles<T, block_gemm_simt_warps>(
      p, [&](const ChosenProduct<T>& tiled, const Stored& stored, i64 expert, const auto& row_of) {
#pragma unroll 1
        for (int row = 0; row < tiled.m; ++row) {
          ChosenProduct<T> own = tiled;
          own.x = static_cast<const T*>(p.x) + row_of(row) * p.x_steps[1];
          own.m = 1, own.sums += row * own.columns;
          BlockGemmSimtTile tile(own, 0);
          tile.m0 = 0, tile.n0 = own.n0, tile.batch = expert;
          block_gemm_simt_tile<F, T>(own, stored, tile);
        }
      });
}

}  // namespace baracuda
