#pragma once
// grouped_int_gemm   products of the rows of experts, integers of 8 bits, as quant_gemm/epilogue.cuh has those of a batch.
//
// The batch is of experts: b, scale_b and bias step from one to the next; a, scale_a and y do not, as an
// expert's rows are some of all. P is that of epilogue.cuh, with what quant_gemm/experts.cuh reads.
#include "quant_gemm/epilogue.cuh"
#include "quant_gemm/experts.cuh"

namespace baracuda {

// Writes zeros to the ROWS by COLUMNS places of a tile that exist, rows of no expert: by so many threads, of which this
// is number `thread`.
template <int ROWS, int COLUMNS, class P>
BARACUDA_D void put_no_integers(const P& p, const GroupTile& tile, int thread = threadIdx.x, int threads = blockDim.x) {
  const i64* const step = p.strides[int_matrix::y];
  const IntOut out = static_cast<IntOut>(p.out);
  const bool narrow = out == IntOut::f16 || out == IntOut::bf16;
  for (int e = thread; e < ROWS * COLUMNS; e += threads) {
    const i64 m = tile.m0 + e / COLUMNS, n = tile.n0 + e % COLUMNS;
    if (m >= tile.end || n >= p.n) continue;
    const i64 at = m * step[0] + n * step[1];
    if (narrow) static_cast<u16*>(p.y)[at] = 0;
    else static_cast<u32*>(p.y)[at] = 0;
  }
}

}  // namespace baracuda
