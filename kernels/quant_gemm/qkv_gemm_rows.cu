// qkv_gemm_rows   q, k, v = x Wᵀ + bias by three stored matrices, of f16 or bf16, for few rows of x: a block makes what one of
//                 block_gemm_rows makes, in its order of sums.
#include "quant_gemm/block_gemm_rows.cuh"
#include "quant_gemm/qkv_gemm.cuh"

namespace baracuda {

template <class F, class T, int NT, int SPLITS, class P> BARACUDA_D void qkv_gemm_rows(const P& p) {
  const int i = qkv_product(p, blockIdx.x);
  const QkvProduct own(p, i);
  const BlockGemmRowsTile<NT, SPLITS> tile(own, blockIdx.x - p.first[i]);
  block_gemm_rows_tile<F, T, NT, SPLITS>(own, Stored(own), tile);
}

}  // namespace baracuda
