// gemm_mma   alpha · a b and its epilogue E (gemm/epilogue.cuh) on tensor cores, of f16 or bf16 with sums in float.
//
// A_K, B_K: whether k, else the other axis, has stride 1 in a and b. A block computes a tile (gemm/mma.cuh, which says
// what fixes the order of sums); tiles are taken in the order of gemm/raster.cuh.
#include "gemm/epilogue.cuh"
#include "gemm/mma.cuh"
#include "gemm/raster.cuh"
#include <baracuda/opaque.cuh>

namespace baracuda {

template <class T, class U, bool A_K, bool B_K, bool GATED, int SIZE,
          class E = Epilogue<U, T, float, GATED, GemmMmaParams>>
BARACUDA_D void gemm_mma(const GemmMmaParams& p) {
  using Tile = MmaTile<T, A_K, B_K, GATED, SIZE>;
  BARACUDA_DYNAMIC_SMEM(T, ring);
  const Raster at(blockIdx.x, div_up(p.m, Tile::rows), div_up(p.n, Tile::cols));
  const i64 m0 = at.m * Tile::rows, n0 = at.n * Tile::cols;
  Tile tile;
  if (p.alpha() != 0.0) {  // 0 leaves a and b unread
    const BatchOffsets begin(p, at.batch);
    const auto matrix = [&](const void* start, int which) { return static_cast<const T*>(start) + begin.at[which]; };
    const auto wide = [&](int which) { return (p.wide >> which & 1) != 0; };
    const auto right = [&](const void* start, int which) {
      const i64* const step = p.strides[which];
      return typename Tile::Right(matrix(start, which), step[1], step[0], n0, p.n, wide(which));
    };
    const i64* const step = p.strides[gemm_matrix::a];
    const typename Tile::Left a(matrix(p.a, gemm_matrix::a), step[0], step[1], m0, p.m, wide(gemm_matrix::a));
    if constexpr (GATED) {
      const typename Tile::Right b[2] = {right(p.b, gemm_matrix::b), right(p.up, gemm_matrix::up)};
      tile.add(ring, a, b, 0, p.k);
    } else {
      const typename Tile::Right b[1] = {right(p.b, gemm_matrix::b)};
      tile.add(ring, a, b, 0, p.k);
    }
  }
  const BatchOffsets begin(p, static_cast<i64>(forgotten(static_cast<u64>(at.batch))));
  const E epilogue(p, begin);
  tile.finish(ring, [&](int row, int col, const auto& sum, const auto& up) {
    if (m0 + row < p.m && n0 + col < p.n) epilogue.row(m0 + row, n0 + col, p.n - n0 - col, sum, up);
  });
}

}  // namespace baracuda
