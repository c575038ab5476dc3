// int_gemm_wgmma products of integers of 8 bits with the epilogue of quant_gemm/epilogue.cuh, on sm_90a:
//                quant_gemm/int8_wgmma.cuh.
#include "quant_gemm/int8_wgmma.cuh"

namespace baracuda {

template <class TA, class TB, IntGemm KIND, int COLUMNS> BARACUDA_D void int_gemm_wgmma(const IntWgmmaParams& p) {
  BARACUDA_DYNAMIC_SMEM(unsigned char, shared);
  gemm::Int8Product<TA, TB, KIND, COLUMNS, IntWgmmaParams>(p, shared).run();
}

}  // namespace baracuda
