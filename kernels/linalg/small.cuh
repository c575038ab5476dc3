#pragma once
// small      matrices of up to 64 rows in shared memory, whole batches in one launch.
//
// A group of G threads has a matrix (1 for up to 4 rows, then 8, 16, 32, 64), so that each thread has a row; groups of
// a warp stand beside one another and take the same steps, those past the last matrix too. A block loads and stores its
// matrices with all threads, along whichever axis is dense. Rows are `pitch` elements apart and matrices `size`, both
// odd: a column's elements, or those of one place in many matrices, lie in different banks.
#include <baracuda/index.cuh>

#include "linalg/numbers.cuh"

namespace baracuda {

template <class T, int G, class P> struct SmallMatrices {
  const P& p;
  T* const tiles;
  const int groups, group, lane;
  const i64 first;  // matrix of the block
  const u32 held;   // matrices of the block

  BARACUDA_D explicit SmallMatrices(const P& p)
      : p(p),
        tiles(dynamic_smem<T>()),
        groups(static_cast<int>(blockDim.x) / G),
        group(static_cast<int>(threadIdx.x) / G),
        lane(static_cast<int>(threadIdx.x) % G),
        first(static_cast<i64>(blockIdx.x) * groups),
        held(static_cast<u32>(min<i64>(groups, p.count - first))) {}

  // The group's piece of the shared memory of an array of matrices; `array` counts those that the kernel keeps.
  BARACUDA_D T* tile(int array = 0) const { return tiles + (array * groups + group) * p.size; }
  BARACUDA_D bool mine() const { return group < static_cast<int>(held); }

  // Elements from an operand's pointer to its part of a matrix of the block.
  BARACUDA_D i64 begin(int operand, u32 matrix) const {
    return offset<i64>(first + matrix, p.batch_rank, p.batch_shape, p.batch[operand]);
  }

  // act(element in shared memory, element of the operand, row, column) for each place of each matrix.
  template <class F> BARACUDA_D void each(int operand, int array, F act) const {
    const DivMod square{p.by_square[0], p.by_square[1], p.by_square[2]}, side{p.by_side[0], p.by_side[1], p.by_side[2]};
    const i64 down = p.strides[operand][0], right = p.strides[operand][1];
    const bool by_columns = p.by_columns >> operand & 1;
    for (u32 e = threadIdx.x; e < held * square.divisor; e += blockDim.x) {
      u32 place, minor;
      const u32 matrix = square.divmod(e, place), major = side.divmod(place, minor);
      const u32 row = by_columns ? minor : major, column = by_columns ? major : minor;
      act(tiles + (array * groups + matrix) * p.size + row * p.pitch + column,
          begin(operand, matrix) + row * down + column * right, row, column);
    }
    __syncthreads();
  }

  // Where all threads of a group have come.
  BARACUDA_D void sync() const {
    if constexpr (G > warp_size) __syncthreads();
    else if constexpr (G > 1) __syncwarp();
  }

  // act(line) for the group's rows, or columns, from `from` on, a thread's own each.
  template <class F> BARACUDA_D void lines(int from, F act) const {
    for (int line = G == 1 ? from : lane; line < p.n; line += G) {
      if (line >= from) act(line);
    }
  }
};

}  // namespace baracuda
