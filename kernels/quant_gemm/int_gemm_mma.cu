// int_gemm_mma   products of integers of 8 bits with the epilogue of quant_gemm/epilogue.cuh, any strides:
//                quant_gemm/int8_tile.cuh.
//
// A block computes a tile; tiles are taken in the order of gemm/raster.cuh.
#include "gemm/raster.cuh"
#include "quant_gemm/int8_tile.cuh"

namespace baracuda {

template <class TA, class TB, IntGemm KIND, bool LONG, int SIZE> BARACUDA_D void int_gemm_mma(const IntGemmParams& p) {
  using Tile = gemm::Int8Tile<TA, TB, KIND, LONG, SIZE>;
  BARACUDA_DYNAMIC_SMEM(u8, ring);
  const Raster at(blockIdx.x, div_up(p.m, SIZE), div_up(p.n, SIZE));
  const i64 m0 = at.m * SIZE, n0 = at.n * SIZE;
  const IntEpilogue<KIND, IntGemmParams> epilogue(p, at.batch);
  const auto lines = [&](const void* matrix, int which, int k_axis, i64 start, i64 end) {
    const i64* const step = p.strides[which];
    const u8* const from = static_cast<const u8*>(matrix) + epilogue.begin.at[which];
    return typename Tile::Operand(from, step[1 - k_axis], step[k_axis], start, end, p.wide >> which & 1);
  };
  Tile tile;
  tile.add(ring, lines(p.a, int_matrix::a, 1, m0, p.m), lines(p.b, int_matrix::b, 0, n0, p.n), p, epilogue, m0, n0);
  tile.finish(ring, [&](int row, int column, const auto& sum) {
    const i64 m = m0 + row, n = n0 + column;
    if (m < p.m && n < p.n) epilogue.row(m, n, p.n - n, sum);
  });
}

}  // namespace baracuda
