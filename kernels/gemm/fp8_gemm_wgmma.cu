// fp8_gemm_wgmma alpha · a b of fp8 with scales, and the epilogue (gemm/fp8_epilogue.cuh), on sm_90a: gemm/wgmma_fp8.cuh.
//
// alpha 0 leaves a and b unread.
#include "gemm/wgmma_fp8.cuh"

namespace baracuda {

template <class TA, class TB, class U, int COLUMNS, int CLUSTER>
BARACUDA_D void fp8_gemm_wgmma(const Fp8WgmmaParams& p) {
  using V = conditional<is_fp8<U>, float, U>;  // of the bias
  using E = Fp8Epilogue<U, Fp8WgmmaParams>;
  BARACUDA_DYNAMIC_SMEM(unsigned char, shared);
  const float alpha = static_cast<float>(p.alpha());
  gemm::Fp8Product<TA, TB, U, V, COLUMNS, CLUSTER, Fp8WgmmaParams, E>(p, shared, alpha != 0.0f).run(alpha);
}

}  // namespace baracuda
