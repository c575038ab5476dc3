// qkv_gemm_simt   q, k, v = x Wᵀ + bias by three stored matrices, of f32: a block makes what one of
//                 block_gemm_simt makes, in its order of sums.
#include "quant_gemm/block_gemm_simt.cuh"
#include "quant_gemm/qkv_gemm.cuh"

namespace baracuda {

template <class F, class T, class P> BARACUDA_D void qkv_gemm_simt(const P& p) {
  const int i = qkv_product(p, blockIdx.x);
  const QkvProduct own(p, i);
  block_gemm_simt_tile<F, T>(own, Stored(own), BlockGemmSimtTile(own, blockIdx.x - p.first[i]));
}

}  // namespace baracuda
