// syrk_mma   y = alpha · a aᵀ + beta · c on tensor cores: f16, bf16, or floats in TF32.
//
// A_K: whether k, else the other axis, has stride 1 in a. A block computes one tile of gemm/syrk.cuh by gemm/mma.cuh, which
// says what fixes the order of sums (p.piece: slices of a piece), and puts its results into both triangles.
#include "gemm/mma.cuh"
#include "gemm/syrk.cuh"

namespace baracuda {

template <class Tile> struct SyrkTask {
  i64 batch, m0, n0;
  BARACUDA_D SyrkTask(const SyrkMmaParams& p, u64 block) {
    u64 number;
    batch = static_cast<i64>(divmod(block, static_cast<u64>(p.tiles), number));
    const LowerTile<Tile::rows, Tile::cols> tile(p, static_cast<u32>(number));
    m0 = static_cast<i64>(tile.m) * Tile::rows, n0 = static_cast<i64>(tile.n) * Tile::cols;
  }
};

// A warp's quarter of the tile through its part of the ring's memory, 32 rows at a time: along the rows, then down the
// columns, both in vectors of eight.
template <class U, class Tile>
BARACUDA_D void syrk_finish(float* ring, const Tile& tile, const SyrkMmaParams& p, const SyrkTask<Tile>& task) {
  constexpr int slab = Tile::slab, pitch = Tile::pitch, chunks = Tile::warp_cols / 8, octets = slab / 8;
  const SyrkResult<U, float, SyrkMmaParams> result(p, SyrkOffsets(p, task.batch));
  const int warp = static_cast<int>(threadIdx.x) / warp_size, lane = lane_id();
  float* const mine = ring + warp * (slab * pitch);
  const i64 m0 = task.m0 + warp / 2 * Tile::warp_rows, n0 = task.n0 + warp % 2 * Tile::warp_cols;
#pragma unroll 1
  for (int start = 0; start < Tile::warp_rows; start += slab) {
    __syncwarp();
#pragma unroll
    for (int m = 0; m < Tile::MT; ++m) {
      if (16 * m / slab * slab != start) continue;
      float* const own = mine + (16 * m % slab + lane / 4) * pitch + lane % 4 * 2;
#pragma unroll
      for (int n = 0; n < Tile::NT; ++n)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          Vec<float, 2> pair;
          pair[0] = tile.acc[0][m][n][2 * half], pair[1] = tile.acc[0][m][n][2 * half + 1];
          store(own + 8 * half * pitch + 8 * n, pair);
        }
    }
    __syncwarp();
    // Store below the diagonal; what is stored goes back into the memory.
#pragma unroll 1
    for (int i = lane; i < slab * chunks; i += warp_size) {
      const int row = i / chunks, col = i % chunks * 8;
      const i64 m = m0 + start + row, n = n0 + col;
      if (m >= p.n || n > m) continue;
      float* const at = mine + row * pitch + col;
      const auto x = result.of(m, n, p.n - n, load<8>(at));
      result.below(m, n, p.n - n, x);
      store(at, x);
    }
    __syncwarp();
    // Store above the diagonal.
#pragma unroll 1
    for (int i = lane; i < Tile::warp_cols * octets; i += warp_size) {
      const int col = i / octets, row = i % octets * 8;
      const i64 m = m0 + start + row, n = n0 + col;
      if (m >= p.n || n >= p.n || n >= m + 7) continue;
      Vec<float, 8> x;
#pragma unroll
      for (int e = 0; e < 8; ++e) x[e] = mine[(row + e) * pitch + col];
      result.above(m, n, p.n - m, x);
    }
  }
}

template <class T, class U, bool A_K, int SIZE> BARACUDA_D void syrk_mma(const SyrkMmaParams& p) {
  using Tile = MmaTile<T, A_K, A_K, false, SIZE>;
  BARACUDA_DYNAMIC_SMEM(T, ring);
  // Multiply; alpha 0 leaves a unread.
  Tile tile;
  if (p.alpha() != 0.0) {
    const SyrkTask<Tile> task(p, blockIdx.x);
    const SyrkOffsets begin(p, task.batch);
    const i64* const step = p.strides[syrk_matrix::a];
    const T* const matrix = static_cast<const T*>(p.a) + begin.at[0];
    const typename Tile::Left a(matrix, step[0], step[1], task.m0, p.n, p.wide & 1);
    typename Tile::Right b[1] = {typename Tile::Right(matrix, step[0], step[1], task.n0, p.n, p.wide & 1)};
    tile.add(ring, a, b, p.k, p.piece);
  }
  const SyrkTask<Tile> task(
      p, forgotten(static_cast<u64>(blockIdx.x)));  // again: registers have no room for it until here
  syrk_finish<U>(reinterpret_cast<float*>(ring), tile, p, task);
}

}  // namespace baracuda
