// block_gemm_simt   y = x Wᵀ + bias by stored weights, in float. block_gemm_simt.cuh has the order.
#include "quant_gemm/block_gemm_simt.cuh"

namespace baracuda {

template <class F, class T, class P> BARACUDA_D void block_gemm_simt(const P& p) {
  block_gemm_simt_tile<F, T>(p, Stored(p), BlockGemmSimtTile(p, blockIdx.x));
}

}  // namespace baracuda
