// scaled_conv   convolutions of fp8 with scales: conv/codes.cuh.
//
// The products of 128 of k are one chain from zero, in the order of k, and are added to the sum in float: bits depend on k
// alone. NATIVE: the tensor cores multiply fp8, which keep some 13 bits below the largest term; else they multiply f16, which
// has its values. scaled_conv_each: one chain of fused multiply-adds.
#include "conv/codes.cuh"
#include "gemm/mma_fp8.cuh"

namespace baracuda {

template <class TX, class TW, bool NATIVE, int SIZE> BARACUDA_D void scaled_conv_mma(const ConvParams& p) {
  using MMA = conditional<NATIVE, gemm::Fp8WarpMma<TX>, gemm::WidenedFp8WarpMma<TX, TW>>;
  using Tile = ConvBytes<MMA, SIZE>;
  BARACUDA_DYNAMIC_SMEM(u8, ring);
  const Raster task(static_cast<i64>(blockIdx.x), div_up(p.rows, static_cast<i64>(SIZE)),
                    div_up(p.cols, static_cast<i64>(SIZE)));
  typename Tile::Accumulator acc;
  clear_accumulators(acc);
  Tile::each(ring, p, task, [&](const auto& slice) {
    typename Tile::Accumulator partial;
    clear_accumulators(partial);
#pragma unroll(NATIVE ? Tile::steps : 2)
    for (int step = 0; step < Tile::steps; ++step) slice.multiply(partial, step);
#pragma unroll
    for (int m = 0; m < Tile::MT; ++m)
#pragma unroll
      for (int n = 0; n < Tile::NT; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) acc[m][n][e] += partial[m][n][e];
  });
  Tile::out(ring, p, task, acc, [&](i64 m, i64 n, i64 left, const auto& sum) {
    ConvCodes<float>::put(p, task.batch, ConvRow(p, m), n, left, sum);
  });
}

template <class TX, class TW> BARACUDA_D void scaled_conv_each(const ConvParams& p) {
  conv_codes_each<float, float, TX, TW>(
      p, [](float& sum, TX x, TW w, int, int) { sum = math::fma(cast<float>(x), cast<float>(w), sum); });
}

}  // namespace baracuda
