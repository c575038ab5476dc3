// gemm_mma_f64   alpha · a b and its epilogue E (gemm/epilogue.cuh) of doubles on tensor cores.
//
// A_K, B_K: whether k, else the other axis, has stride 1 in a and b. A block computes a tile (gemm/mma_f64.cuh, which
// says what fixes the order of sums); tiles are taken in the order of gemm/raster.cuh.
#include "gemm/epilogue.cuh"
#include "gemm/mma_f64.cuh"
#include "gemm/raster.cuh"

namespace baracuda {

template <bool A_K, bool B_K, bool GATED, int SIZE, class E = Epilogue<double, double, double, GATED, GemmMmaF64Params>>
BARACUDA_D void gemm_mma_f64(const GemmMmaF64Params& p) {
  using Tile = MmaTileF64<A_K, B_K, GATED, SIZE>;
  BARACUDA_DYNAMIC_SMEM(double, ring);
  const Raster at(static_cast<i64>(blockIdx.x), div_up(p.m, Tile::rows), div_up(p.n, Tile::cols));
  const i64 m0 = at.m * Tile::rows, n0 = at.n * Tile::cols;
  const BatchOffsets begin(p, at.batch);
  const E epilogue(p, begin);
  Tile tile;
  if (epilogue.multiplies()) {
    const auto matrix = [&](const void* start, int which) {
      return static_cast<const double*>(start) + begin.at[which];
    };
    const auto wide = [&](int bits) { return (p.wide & bits) == bits; };
    constexpr int right_bits = 1 << gemm_matrix::b | (GATED ? 1 << gemm_matrix::up : 0);
    const auto right = [&](const void* start, int which) {
      const i64* const step = p.strides[which];
      return typename Tile::Right(matrix(start, which), step[1], step[0], n0, p.n, wide(right_bits));
    };
    const i64* const step = p.strides[gemm_matrix::a];
    const typename Tile::Left a(matrix(p.a, gemm_matrix::a), step[0], step[1], m0, p.m, wide(1 << gemm_matrix::a));
    if constexpr (GATED) {
      typename Tile::Right b[2] = {right(p.b, gemm_matrix::b), right(p.up, gemm_matrix::up)};
      tile.add(ring, a, b, p.k);
    } else {
      typename Tile::Right b[1] = {right(p.b, gemm_matrix::b)};
      tile.add(ring, a, b, p.k);
    }
  }
  tile.finish(ring, [&](int row, int col, const auto& sum, const auto& up) {
    const i64 m = m0 + row, n = n0 + col;
    if (m < p.m && n < p.n) epilogue.row(m, n, p.n - n, sum, up);
  });
}

}  // namespace baracuda
