// grouped_block_gemm_simt   y[r] = x[r] W[e]ᵀ + bias[e] for the rows r of each expert e, by weights as they are stored, in
//                           float: tiles of quant_gemm/block_gemm_simt.cuh, which says what fixes the order of sums. A
//                           block walks the tiles that the offsets make.
#include "quant_gemm/block_gemm_simt.cuh"
#include "quant_gemm/grouped_block_gemm.cuh"

namespace baracuda {

template <class F, class T, class P> BARACUDA_D void grouped_block_gemm_simt(const P& p) {
  constexpr int rows = block_gemm_simt_rows, columns = block_gemm_simt_warps;
  const Stored stored(p);
  expert_tiles<rows, columns, columns * warp_size>(
      p,
      [&](const GroupTile& at) {
        const ExpertProduct<T> own(p, at);
        block_gemm_simt_tile<F, T>(own, stored, tile_of_expert<BlockGemmSimtTile>(own, at));
      },
      [&](const GroupTile& at) { put_no_expert<T, rows, columns>(p, at); });
}

}  // namespace baracuda
