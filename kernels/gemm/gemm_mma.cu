// gemm_mma   alpha · a b and its epilogue E (gemm/epilogue.cuh) on tensor cores: f16, bf16, or floats in TF32.
//
// A_K, B_K: whether k, else the other axis, has stride 1 in a and b. A block computes a tile (gemm/mma.cuh, which says
// what fixes the order of sums; p.piece: slices of a piece); tiles are taken in the order of gemm/raster.cuh. Where
// there are few tiles, `parts` is memory for float[products][pieces][batch][m][n, to a multiple of 8]: a block computes
// one piece of a tile, and gemm_parts adds them.
#include "gemm/epilogue.cuh"
#include "gemm/mma.cuh"
#include "gemm/raster.cuh"

namespace baracuda {

// Where a row of the sums of a piece is.
BARACUDA_D float* piece_row(const GemmMmaParams& p, int product, i64 piece, i64 batch, i64 m) {
  return static_cast<float*>(p.parts) + (((product * p.pieces + piece) * p.items + batch) * p.m + m) * round_up(p.n, 8);
}

// What a block computes: a tile of rows m0 … and columns n0 … of a batch index, and one piece, or all (piece 0).
template <class Tile> struct Task {
  i64 piece, batch, m0, n0;
  BARACUDA_D Task(const GemmMmaParams& p, u64 block) : piece(0) {
    const i64 tiles_m = div_up(p.m, Tile::rows), tiles_n = div_up(p.n, Tile::cols);
    if (p.parts != nullptr) {
      piece = static_cast<i64>(divmod(block, static_cast<u64>(tiles_m * tiles_n * p.items), block));
    }
    const Raster at(static_cast<i64>(block), tiles_m, tiles_n);
    batch = at.batch, m0 = at.m * Tile::rows, n0 = at.n * Tile::cols;
  }
};

template <class T, class U, bool A_K, bool B_K, bool GATED, int SIZE,
          class E = Epilogue<U, T, float, GATED, GemmMmaParams>>
BARACUDA_D void gemm_mma(const GemmMmaParams& p) {
  using Tile = MmaTile<T, A_K, B_K, GATED, SIZE>;
  BARACUDA_DYNAMIC_SMEM(T, ring);
  // Multiply; alpha 0 leaves a and b unread.
  Tile tile;
  if (p.alpha() != 0.0) {
    const Task<Tile> task(p, blockIdx.x);
    const BatchOffsets begin(p, task.batch);
    const i64 from = task.piece * p.piece * Tile::depth;
    const i64 k = p.parts != nullptr ? min<i64>(p.k - from, p.piece * Tile::depth) : p.k;
    const auto matrix = [&](const void* start, int which, int k_axis) {
      return static_cast<const T*>(start) + begin.at[which] + from * p.strides[which][k_axis];
    };
    const auto wide = [&](int bits) { return (p.wide & bits) == bits; };
    constexpr int left_bit = 1 << gemm_matrix::a;
    constexpr int right_bits = 1 << gemm_matrix::b | (GATED ? 1 << gemm_matrix::up : 0);
    const auto right = [&](const void* start, int which) {
      const i64* const step = p.strides[which];
      return typename Tile::Right(matrix(start, which, 0), step[1], step[0], task.n0, p.n, wide(right_bits));
    };
    const i64* const step = p.strides[gemm_matrix::a];
    const typename Tile::Left a(matrix(p.a, gemm_matrix::a, 1), step[0], step[1], task.m0, p.m, wide(left_bit));
    if constexpr (GATED) {
      typename Tile::Right b[2] = {right(p.b, gemm_matrix::b), right(p.up, gemm_matrix::up)};
      tile.add(ring, a, b, k, p.piece);
    } else {
      typename Tile::Right b[1] = {right(p.b, gemm_matrix::b)};
      tile.add(ring, a, b, k, p.piece);
    }
  }
  // Store the piece, or finish the sums.
  const Task<Tile> task(p, forgotten(static_cast<u64>(blockIdx.x)));  // again: registers have no room for it until here
  const BatchOffsets begin(p, task.batch);
  const E epilogue(p, begin);
  tile.finish(ring, [&](int row, int col, const auto& sum, const auto& up) {
    const i64 m = task.m0 + row, n = task.n0 + col;
    if (m >= p.m || n >= p.n) return;
    if (p.parts != nullptr) {
      store(piece_row(p, 0, task.piece, task.batch, m) + n, sum);
      if (GATED) store(piece_row(p, 1, task.piece, task.batch, m) + n, up);
    } else {
      epilogue.row(m, n, p.n - n, sum, up);
    }
  });
}

// Adds the pieces of eight neighbouring columns in their order, and finishes them.
template <class T, class U, bool GATED, class E = Epilogue<U, T, float, GATED, GemmMmaParams>>
BARACUDA_D void gemm_parts(const GemmMmaParams& p) {
  u64 chunk, m;
  const u64 row = divmod(static_cast<u64>(thread_index()), static_cast<u64>(div_up(p.n, 8)), chunk);
  const i64 batch = static_cast<i64>(divmod(row, static_cast<u64>(p.m), m)), n = static_cast<i64>(chunk) * 8;
  if (batch >= p.items) return;
  Vec<float, 8> sums[GATED ? 2 : 1];
#pragma unroll
  for (int r = 0; r < (GATED ? 2 : 1); ++r) {
    sums[r] = load<8>(piece_row(p, r, 0, batch, static_cast<i64>(m)) + n);
    for (int piece = 1; piece < p.pieces; ++piece) {
      const auto next = load<8>(piece_row(p, r, piece, batch, static_cast<i64>(m)) + n);
#pragma unroll
      for (int e = 0; e < 8; ++e) sums[r][e] += next[e];
    }
  }
  const BatchOffsets begin(p, batch);
  const E epilogue(p, begin);
  epilogue.row(static_cast<i64>(m), n, p.n - n, sums[0], sums[GATED]);
}

}  // namespace baracuda
