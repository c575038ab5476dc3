#pragma once
// block_gemm_simt   the sums of a row of W and up to 8 rows of x by stored weights, in float, by one warp. A lane has the
//                   parts of 8 of k l, l + 32, … in order, and the lanes are added as a tree: the order depends on k
//                   alone.
#include "quant_gemm/block_gemm.cuh"
#include <baracuda/reduce.cuh>

namespace baracuda {

constexpr int block_gemm_simt_rows = 8, block_gemm_simt_warps = 8;

// Calls put(row, sum) for the `left` rows of x, one at least, that are `step` apart.
template <class F, class T, class Put>
BARACUDA_D void block_gemm_simt_row(const Stored& w, const StoredRow& row, i64 depth, const T* x, i64 step, int left,
                                    const Put& put) {
  constexpr int rows = block_gemm_simt_rows;
  const int lane = lane_id();
  float sums[rows] = {};
#pragma unroll 1
  for (i64 k = lane * format_part; k < depth; k += warp_size * format_part) {
    float weights[format_part];
    F::decode(w, row, k, weights);
#pragma unroll
    for (int r = 0; r < rows; ++r) {  // of rows that are not there the last is taken: nobody takes its sum
      const auto values = load_readonly<format_part>(x + min(r, left - 1) * step + k);
#pragma unroll
      for (int j = 0; j < format_part; ++j) sums[r] = math::fma(weights[j], to_acc(values[j]), sums[r]);
    }
  }
#pragma unroll
  for (int r = 0; r < rows; ++r) {
    const float sum = warp_reduce<Sum>(sums[r]);
    if (lane == r && r < left) put(r, sum);
  }
}

}  // namespace baracuda
