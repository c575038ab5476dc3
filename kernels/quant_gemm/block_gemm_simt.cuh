#pragma once
// block_gemm_simt   the tile of a product by stored weights in float. A warp has a row of W and 8 rows of x; a lane has
//                   the parts of 8 of k l, l + 32, … in order, and the lanes are added as a tree: the order depends on k
//                   alone.
#include "quant_gemm/block_gemm.cuh"
#include <baracuda/reduce.cuh>

namespace baracuda {

using BlockGemmSimtTile = BlockGemmTile<block_gemm_simt_rows, block_gemm_simt_warps>;

template <class F, class T, class P>
BARACUDA_D void block_gemm_simt_tile(const P& p, const Stored& w, const BlockGemmSimtTile& tile) {
  constexpr int rows = block_gemm_simt_rows;
  const i64 n = tile.n0 + threadIdx.x / warp_size;
  if (n >= p.n) return;
  const StoredRow row(w, tile.batch, n);
  const T* const x = static_cast<const T*>(p.x) + tile.batch * p.x_steps[0] + tile.m0 * p.x_steps[1];
  const int left = static_cast<int>(min<i64>(rows, p.m - tile.m0)), lane = lane_id();
  float acc[rows] = {};
#pragma unroll 1
  for (i64 k = lane * format_part; k < p.k; k += warp_size * format_part) {
    float weights[format_part];
    F::decode(w, row, k, weights);
#pragma unroll
    for (int r = 0; r < rows; ++r) {  // of rows that are not there the last is taken: nobody takes its sum
      const auto values = load_readonly<format_part>(x + min(r, left - 1) * p.x_steps[1] + k);
#pragma unroll
      for (int j = 0; j < format_part; ++j) acc[r] = math::fma(weights[j], to_acc(values[j]), acc[r]);
    }
  }
#pragma unroll
  for (int r = 0; r < rows; ++r) {
    const float sum = warp_reduce<Sum>(acc[r]);
    if (lane == r && r < left) put_sum<T>(p, tile.batch, tile.m0 + r, n, sum);
  }
}

}  // namespace baracuda
