#pragma once
// flash_sdpa_backward_products.cuh    the products of the backward's wgmma kernels, each started by a warpgroup.
//
// Operands in shared memory are panels of 64 columns, of as many rows as the tile has; their descriptors are those of
// wgmma_operand. The caller fences before (wgmma_fence), and waits for the products and holds what they read and write
// in registers after.
#include "attention/dense/flash_sdpa_backward.cuh"
#include <baracuda/opaque.cuh>
#include <baracuda/wgmma.cuh>

namespace baracuda {
namespace attention {

// In a descriptor: from 16 elements of k to the next, along rows and across them.
constexpr u64 k_within = 32 >> 4, k_across = 2048 >> 4;

// Scores, or dP: s = x yᵀ over D columns, for 64 rows of x (its panels have X_ROWS) and 8 N of y (Y_ROWS).
template <class T, int D, int X_ROWS, int Y_ROWS, int N> BARACUDA_D void start_scores(float (&s)[N][4], u64 x, u64 y) {
#pragma unroll
  for (int d = 0; d < D; d += 16) {
    const u64 step = d % 64 / 16 * k_within;
    wgmma<T, false, false>(s, x + d / 64 * (X_ROWS * 8) + step, y + d / 64 * (Y_ROWS * 8) + step, d != 0);
  }
  wgmma_commit();
}

// dV or dK: acc += x y over the 16 M queries of a tile, for 64 keys; x are A fragments, transposed weights or dS. An
// instruction takes COLUMNS of y, so that a descriptor of y for more than 64 has the distance between panels.
template <class T, int COLUMNS, int M, int N>
BARACUDA_D void add_product(float (&acc)[N][4], const u32 (&x)[M][4], u64 y) {
#pragma unroll
  for (int i = 0; i < M; ++i) {
#pragma unroll
    for (int d = 0; d < 8 * N; d += COLUMNS) {
      wgmma<T, true>(reinterpret_cast<float(&)[COLUMNS / 8][4]>(acc[d / 8]), x[i],
                     y + d / 64 * (M * 16 * 8) + i * k_across, 1);
    }
  }
  wgmma_commit();
}
// The same with x in shared memory, rows of 64 queries, and all columns in one instruction.
template <class T, int N> BARACUDA_D void add_product(float (&acc)[N][4], u64 x, u64 y) {
#pragma unroll
  for (int i = 0; i < 4; ++i) wgmma<T, false, true>(acc, x + i * k_within, y + i * k_across, 1);
  wgmma_commit();
}

// Partial dQ: dq = ds k over KEYS keys, for 64 queries and 8 N columns of k; ds is transposed in shared memory.
template <class T, int KEYS, int N> BARACUDA_D void start_dq(float (&dq)[N][4], u64 ds, u64 keys) {
#pragma unroll
  for (int j = 0; j < KEYS; j += 16) {
    wgmma<T, true, true>(dq, ds + j / 16 * k_across, keys + j / 16 * k_across, j != 0);
  }
  wgmma_commit();
}

}  // namespace attention
}  // namespace baracuda
