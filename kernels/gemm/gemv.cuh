#pragma once
// gemv       where the outputs of a product with few rows stand, and its right matrices.
#include "gemm/epilogue.cuh"

namespace baracuda {

constexpr int gemv_threads = 256;

// P has `right`: how the right matrices are read. gemv_along_k, gemv_along_n: in accesses of 16 bytes where their rows of
// memory start 16-byte aligned, else gemv_narrow: element by element.

// The block's columns, and rows: numbered along the rows, then the columns, then the batch.
template <int ROWS, int COLS> struct GemvBlock {
  i64 m0, n0, batch;
  template <class P> BARACUDA_D explicit GemvBlock(const P& p) {
    const i64 tiles_m = div_up(p.m, i64(ROWS)), tiles_n = div_up(p.n, i64(COLS)), block = blockIdx.x;
    m0 = block % tiles_m * ROWS;
    n0 = block / tiles_m % tiles_n * COLS;
    batch = block / (tiles_m * tiles_n);
  }
};

// The matrices b, and up: where the batch index's begin, and the strides of k and n.
template <class T, bool GATED> struct GemvRights {
  const T* start[GATED ? 2 : 1];
  i64 k_step[GATED ? 2 : 1], n_step[GATED ? 2 : 1];
  template <class P> BARACUDA_D GemvRights(const P& p, const BatchOffsets& begin) {
    set(0, p.b, p.strides[gemm_matrix::b], begin.at[gemm_matrix::b]);
    if constexpr (GATED) set(1, p.up, p.strides[gemm_matrix::up], begin.at[gemm_matrix::up]);
  }

 private:
  BARACUDA_D void set(int r, const void* from, const i64* step, i64 offset) {
    start[r] = static_cast<const T*>(from) + offset;
    k_step[r] = step[0], n_step[r] = step[1];
  }
};

// Eight or fewer neighbours of a matrix: in one access where they are wide, `left` of them exist.
template <class T, int N> BARACUDA_D Vec<T, N> gemv_load(const T* from, i64 step, i64 left, bool wide) {
  return wide ? load_vec<T, N, true, Access::readonly>(from, left) : load_strided<T, N>(from, step, left);
}

}  // namespace baracuda
