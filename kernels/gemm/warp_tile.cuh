#pragma once
// warp_tile  the part of a tile that a warp has of a product by mma.sync, accumulators [MT of 16 rows][NT of 8 columns][4]:
//            its place, its fragments of the right operand, the zeros that it begins with, and its way out.
#include <baracuda/reduce.cuh>
#include <baracuda/vector.cuh>

namespace baracuda {

// The parts that eight warps have of a tile of SIZE x SIZE: 32 columns each, and 64 rows or 16.
template <int SIZE> struct EightWarps {
  static constexpr int warp_rows = SIZE == 128 ? 64 : 16, warp_cols = 32;
  static constexpr int side = SIZE / warp_cols;  // warps side by side
  static constexpr int MT = warp_rows / 16, NT = warp_cols / 8;

  // The first row and column of this warp.
  static BARACUDA_D int warp_row() { return static_cast<int>(threadIdx.x) / warp_size / side * warp_rows; }
  static BARACUDA_D int warp_col() { return static_cast<int>(threadIdx.x) / warp_size % side * warp_cols; }
};

// Fragments of a right operand whose lines are columns: {b[n][0], b[n][1]} of eight columns, over 32 bytes of k.
template <class Source, int NT> BARACUDA_D void read_right(u32 (&b)[NT][2], const Source& right, int step, u32 offset) {
#pragma unroll
  for (int n = 0; n < NT; n += 2) {
    u32 two[4];
    right.read(two, 8 * n, step, offset);
    b[n][0] = two[0], b[n][1] = two[1], b[n + 1][0] = two[2], b[n + 1][1] = two[3];
  }
}

template <class S, int MT, int NT> BARACUDA_D void clear_accumulators(S (&x)[MT][NT][4]) {
#pragma unroll
  for (int m = 0; m < MT; ++m)
#pragma unroll
    for (int n = 0; n < NT; ++n) x[m][n][0] = x[m][n][1] = x[m][n][2] = x[m][n][3] = S(0);
}

// Calls sink(row, column, sums) for every eight columns of the warp's rows, which go through its own part of `shared`.
template <class S, int MT, int NT, class Sink>
BARACUDA_D void put_warp_tile(u8* shared, const S (&acc)[MT][NT][4], const Sink& sink) {
  constexpr int rows = 16 * MT, pitch = 8 * NT + 8;
  S* const mine = reinterpret_cast<S*>(shared) + static_cast<int>(threadIdx.x) / warp_size * (rows * pitch);
  S* const own = mine + lane_id() / 4 * pitch + lane_id() % 4 * 2;
#pragma unroll
  for (int m = 0; m < MT; ++m)
#pragma unroll
    for (int n = 0; n < NT; ++n)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const Vec<S, 2> pair{{acc[m][n][2 * half], acc[m][n][2 * half + 1]}};
        store(own + (16 * m + 8 * half) * pitch + 8 * n, pair);
      }
  __syncwarp();
#pragma unroll 1
  for (int i = lane_id(); i < rows * NT; i += warp_size) {
    const int row = i / NT, column = i % NT * 8;
    sink(row, column, load<8>(mine + row * pitch + column));
  }
}

}  // namespace baracuda
