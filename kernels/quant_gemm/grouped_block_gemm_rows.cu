// grouped_block_gemm_rows   y[r] = x[r] W[e]ᵀ + bias[e] for the rows r of each expert e, by weights as they are stored, of
//                           f16 or bf16: tiles of quant_gemm/block_gemm_rows.cuh, which says what fixes the order of
//                           sums. A block walks the tiles that the offsets make.
#include "quant_gemm/block_gemm_rows.cuh"
#include "quant_gemm/grouped_block_gemm.cuh"

namespace baracuda {

template <class F, class T, int NT, int SPLITS, class P> BARACUDA_D void grouped_block_gemm_rows(const P& p) {
  using Tile = BlockGemmRowsTile<NT, SPLITS>;
  constexpr int rows = 8 * NT, columns = block_gemm_columns(SPLITS);
  const Stored stored(p);
  expert_tiles<rows, columns, block_gemm_threads>(
      p,
      [&](const GroupTile& at) {
        const ExpertProduct<T> own(p, at);
        block_gemm_rows_tile<F, T, NT, SPLITS>(own, stored, tile_of_expert<Tile>(own, at));
      },
      [&](const GroupTile& at) { put_no_expert<T, rows, columns>(p, at); });
}

}  // namespace baracuda
