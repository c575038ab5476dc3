#pragma once
// grouped_block_gemm   what a product by the stored weights of experts does with a sum.
//
// x is [total, k], the stored weights [experts, n, k], y [total, n] in the element of x. P has bias and y and their steps,
// and what quant_gemm/experts.cuh and `Stored` read; rows of x lie along memory and start 16-byte aligned.
#include "quant_gemm/experts.cuh"

namespace baracuda {

// Writes sum + bias[expert, n] to y[m, n], rounded once; of rows of no expert, -1, zeros.
template <class T, class P> BARACUDA_D void put_expert_sum(const P& p, i64 expert, i64 m, i64 n, float sum) {
  if (expert >= 0 && p.bias != nullptr) {
    sum += to_acc(static_cast<const T*>(p.bias)[expert * p.bias_steps[0] + n * p.bias_steps[1]]);
  }
  static_cast<T*>(p.y)[m * p.y_steps[0] + n * p.y_steps[1]] = from_acc<T>(sum);
}

// Writes zeros to the ROWS by COLUMNS places of a tile that exist.
template <class T, int ROWS, int COLUMNS, class P> BARACUDA_D void put_no_expert(const P& p, const GroupTile& tile) {
  for (int e = threadIdx.x; e < ROWS * COLUMNS; e += blockDim.x) {
    const i64 m = tile.m0 + e / COLUMNS, n = tile.n0 + e % COLUMNS;
    if (m < tile.end && n < p.n) put_expert_sum<T>(p, -1, m, n, 0.0f);
  }
}

}  // namespace baracuda
