// gemm_skinny alpha · a b and its epilogue E (gemm/epilogue.cuh) on sm_90a where a has at most 64 rows: gemm/skinny.cuh.
#include "gemm/skinny.cuh"

namespace baracuda {

template <class T, class U, int COLUMNS, bool ACROSS, bool GATED,
          class E = Epilogue<U, T, float, GATED, GemmSkinnyParams>>
BARACUDA_D void gemm_skinny(const GemmSkinnyParams& p) {
  BARACUDA_DYNAMIC_SMEM(unsigned char, shared);
  gemm::Skinny<T, COLUMNS, ACROSS, GATED, GemmSkinnyParams, E>(p, shared).run();
}

}  // namespace baracuda
