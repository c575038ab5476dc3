// quantized_conv_boxes   the problem of quantized_conv_wgmma (conv/quantized_conv_wgmma.cu), with the same bits, where windows of
//                        places lie in boxes that TMA copies (conv/boxes.cuh): channels in whole slices of 128. Outside of x are
//                        zeros, so that a zero point of x is for windows that lie inside.
// scaled_conv_boxes      that of scaled_conv_wgmma, likewise.
#include "conv/boxes.cuh"
#include "conv/codes.cuh"
#include "gemm/wgmma_fp8.cuh"
#include "quant_gemm/int8_mma.cuh"

namespace baracuda {

template <class TX, class TW> struct ConvInt8Boxes : gemm::Int8Mma<TX, TW> {
  static constexpr bool apart = false;
};
template <class TX, class TW> struct ConvFp8Boxes : gemm::Fp8Mma<TX, TW> {
  static constexpr bool apart = true;
};

template <class TX, class TW, int COLS> BARACUDA_D void quantized_conv_boxes(const ConvParams& p) {
  BARACUDA_DYNAMIC_SMEM(unsigned char, shared);
  ConvBoxes<ConvInt8Boxes<TX, TW>, i8, COLS>(p, shared).run_all(
      [&](const ConvRow& place, i64 group, i64 n, i64 left, const auto& sum) {
        conv_integers_put(p, group, place, n, left, sum);
      });
}

template <class TX, class TW, int COLS> BARACUDA_D void scaled_conv_boxes(const ConvParams& p) {
  BARACUDA_DYNAMIC_SMEM(unsigned char, shared);
  ConvBoxes<ConvFp8Boxes<TX, TW>, u8, COLS>(p, shared).run_all(
      [&](const ConvRow& place, i64 group, i64 n, i64 left, const auto& sum) {
        ConvCodes<float>::put(p, group, place, n, left, sum);
      });
}

}  // namespace baracuda
