// block_gemm_rows   y = x Wᵀ + bias by stored weights that are read once for up to 32 rows of x, of f16 or bf16 with sums
//                   in float: decoded in registers, multiplied by tensor cores. block_gemm_rows.cuh has the order.
#include "quant_gemm/block_gemm_rows.cuh"

namespace baracuda {

template <class F, class T, int NT, int SPLITS, class P> BARACUDA_D void block_gemm_rows(const P& p) {
  block_gemm_rows_tile<F, T, NT, SPLITS>(p, Stored(p), BlockGemmRowsTile<NT, SPLITS>(p, blockIdx.x));
}

}  // namespace baracuda
