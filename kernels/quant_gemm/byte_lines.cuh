#pragma once
// byte_lines tiles of products of lines of bytes (gemm/lines.cuh) by eight warps: their numbers, and how a transposed one is
//            written.
#include "gemm/copy_ring.cuh"
#include "gemm/lines.cuh"
#include "gemm/warp_tile.cuh"

namespace baracuda::quant {

using gemm::LineSource;
constexpr int threads = line_threads, stages = line_stages;
template <class T, int EXTENT, int BYTES> using Lines = gemm::Lines<T, EXTENT, BYTES, threads>;

// The accumulators of a transposed tile of eight warps on their way out through shared memory, of which each warp has its
// own part. Calls sink(row, column, sums) for every eight columns of y, which are rows of the tile.
template <int SIZE, class S, int MT, int NT, class Sink>
BARACUDA_D void put_transposed_tile(u8* shared, const S (&acc)[MT][NT][4], const Sink& sink) {
  using Warps = EightWarps<SIZE>;
  constexpr int ROWS = Warps::warp_cols, COLS = Warps::warp_rows, PITCH = COLS + 4, CHUNKS = COLS / 8;
  S* const mine = reinterpret_cast<S*>(shared) + static_cast<int>(threadIdx.x) / warp_size * (ROWS * PITCH);
  const int g = lane_id() / 4, t = lane_id() % 4;
#pragma unroll
  for (int m = 0; m < MT; ++m)
#pragma unroll
    for (int n = 0; n < NT; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int row = 16 * m + g + e / 2 * 8, column = 8 * n + 2 * t + e % 2;
        mine[column * PITCH + row] = acc[m][n][e];
      }
  __syncwarp();
  const int row0 = Warps::warp_col(), col0 = Warps::warp_row();
#pragma unroll 1
  for (int i = lane_id(); i < ROWS * CHUNKS; i += warp_size) {
    const int row = i / CHUNKS, column = i % CHUNKS * 8;
    sink(row0 + row, col0 + column, load<8>(mine + row * PITCH + column));
  }
}

}  // namespace baracuda::quant
