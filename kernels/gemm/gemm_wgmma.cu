// gemm_wgmma alpha · a b and its epilogue E (gemm/epilogue.cuh) on sm_90a: gemm/wgmma.cuh.
//
// alpha 0 leaves a and b unread.
#include "gemm/epilogue.cuh"
#include "gemm/wgmma.cuh"

namespace baracuda {

template <class T, class U, int COLUMNS, bool A_ACROSS, bool B_ACROSS, bool GATED,
          class E = Epilogue<U, T, float, GATED, GemmWgmmaParams>, int STAGES = gemm::default_stages<COLUMNS>,
          int BOXES = 2>
BARACUDA_D void gemm_wgmma(const GemmWgmmaParams& p) {
  BARACUDA_DYNAMIC_SMEM(unsigned char, shared);
  const float alpha = static_cast<float>(p.alpha());
  using Mma = gemm::FloatMma<T, A_ACROSS, B_ACROSS>;
  using Product = gemm::Product<Mma, U, COLUMNS, GATED, STAGES, BOXES, GemmWgmmaParams, E>;
  Product(p, shared, alpha != 0.0f).run(alpha);
}

}  // namespace baracuda
