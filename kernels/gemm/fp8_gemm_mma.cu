// fp8_gemm_mma   alpha · a b of fp8 with scales, and the epilogue (gemm/fp8_epilogue.cuh), any strides: gemm/mma_fp8.cuh.
//
// A block computes a tile; tiles are taken in the order of gemm/raster.cuh. alpha 0 leaves a and b unread.
#include "gemm/fp8_epilogue.cuh"
#include "gemm/mma_fp8.cuh"
#include "gemm/raster.cuh"

namespace baracuda {

template <class TA, class TB, class U, bool NATIVE, int SIZE> BARACUDA_D void fp8_gemm_mma(const Fp8GemmParams& p) {
  using Tile = gemm::Fp8Tile<TA, TB, NATIVE, SIZE>;
  BARACUDA_DYNAMIC_SMEM(u8, ring);
  const Raster at(blockIdx.x, div_up(p.m, SIZE), div_up(p.n, SIZE));
  const i64 m0 = at.m * SIZE, n0 = at.n * SIZE;
  Tile tile;
  if (static_cast<float>(p.alpha()) != 0.0f) {
    const auto lines = [&](const void* matrix, int which, int k_axis, i64 start, i64 end) {
      const i64* const step = p.strides[which];
      const bool wide = p.wide >> which & 1;
      return typename Tile::Operand(static_cast<const u8*>(matrix), step[1 - k_axis], step[k_axis], start, end, wide);
    };
    tile.add(ring, lines(p.a, gemm_matrix::a, 1, m0, p.m), lines(p.b, gemm_matrix::b, 0, n0, p.n), p, m0, n0);
  }
  const Fp8Epilogue<U, Fp8GemmParams> epilogue(p, BatchOffsets(p, 0));
  tile.finish(ring, [&](int row, int column, const auto& sum) {
    const i64 m = m0 + row, n = n0 + column;
    if (m < p.m && n < p.n) epilogue.row(m, n, p.n - n, sum, sum);
  });
}

}  // namespace baracuda
