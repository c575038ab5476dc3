// gemm_skinny alpha · a b and its epilogue E (gemm/epilogue.cuh) on sm_90a where a has at most 64 rows: gemm/skinny.cuh.
#include "gemm/skinny.cuh"

namespace baracuda {

template <class T, class U, int COLUMNS, bool ACROSS, bool GATED,
          class E = Epilogue<U, T, float, GATED, GemmSkinnyParams>, int CHAINS = 1>
BARACUDA_D void gemm_skinny(const GemmSkinnyParams& p) {
  BARACUDA_DYNAMIC_SMEM(unsigned char, shared);
  gemm::Skinny<T, COLUMNS, ACROSS, GATED, CHAINS, GemmSkinnyParams, E>(p, shared).run();
}

// Each sum in several chains, as many as registers have room for.
template <class T, class U, int COLUMNS, bool ACROSS, bool GATED>
BARACUDA_D void gemm_skinny_chains(const GemmSkinnyParams& p) {
  constexpr int chains = GATED && COLUMNS == 64 ? 2 : 4;
  gemm_skinny<T, U, COLUMNS, ACROSS, GATED, Epilogue<U, T, float, GATED, GemmSkinnyParams>, chains>(p);
}

}  // namespace baracuda
