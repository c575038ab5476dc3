#pragma once
// small      matrices of up to 64 rows and columns in shared memory, whole batches in one launch.
//
// A group of G threads has a matrix (1 for up to 4 lines, then 8, 16, 32, 64), so that each thread has a line of it;
// groups past the last matrix compute with whatever is there. A block loads and stores its matrices with all threads,
// along whichever axis is dense. Rows are `pitch` elements apart and matrices `size`, both odd: a column's elements, or
// those of one place in many matrices, lie in different banks.
#include <baracuda/index.cuh>
#include <baracuda/reduce.cuh>

#include "linalg/numbers.cuh"

namespace baracuda {

template <class T, int G, class P> struct SmallMatrices {
  using R = part_t<T>;
  static constexpr int lines_size = G > 1 ? G : 4;  // elements that a group has three times beside its matrices

  const P& p;
  T* const tiles;
  const int groups, group, lane;
  const i64 first;  // matrix of the block
  const u32 held;   // matrices of the block

  BARACUDA_D explicit SmallMatrices(const P& p)
      : p(p), tiles(dynamic_smem<T>()), groups(static_cast<int>(blockDim.x) / G),
        group(static_cast<int>(threadIdx.x) / G), lane(static_cast<int>(threadIdx.x) % G),
        first(static_cast<i64>(blockIdx.x) * groups), held(static_cast<u32>(min<i64>(groups, p.count - first))) {}

  // One of the arrays of matrices that the kernel keeps: a group's own, or that of a matrix of the block.
  BARACUDA_D T* tile(int array = 0) const { return tile_of(array, group); }
  BARACUDA_D T* tile_of(int array, int matrix) const { return tiles + (array * groups + matrix) * p.size; }
  // Three places for an element a line: what the lines tell one another, and whatever else the kernel keeps there.
  BARACUDA_D T* beside(int which = 0) const { return beside_of(which, group); }
  BARACUDA_D T* beside_of(int which, int matrix) const {
    return tiles + p.arrays * groups * p.size + (matrix * 3 + which) * lines_size;
  }
  BARACUDA_D bool mine() const { return group < static_cast<int>(held); }
  BARACUDA_D bool leads() const { return mine() && lane == 0; }

  // Elements from an operand's pointer to its part of a matrix of the block.
  BARACUDA_D i64 begin(int operand, u32 matrix) const {
    return offset<i64>(first + matrix, p.batch_rank, p.batch_shape, p.batch[operand]);
  }

  // act(matrix of the block, row, column, element of the operand) for each place of each matrix, and all have come. A
  // vector has one row.
  template <class F> BARACUDA_D void each(int operand, F act) const {
    const u32(&whole)[3] = p.by_place[operand], (&line)[3] = p.by_minor[operand];
    const DivMod places{whole[0], whole[1], whole[2]}, minors{line[0], line[1], line[2]};
    const i64 down = p.strides[operand][0], right = p.strides[operand][1];
    const bool by_columns = p.by_columns >> operand & 1;
    for (u32 e = threadIdx.x; e < held * places.divisor; e += blockDim.x) {
      u32 place, minor;
      const u32 matrix = places.divmod(e, place), major = minors.divmod(place, minor);
      const u32 row = by_columns ? minor : major, column = by_columns ? major : minor;
      act(static_cast<int>(matrix), static_cast<int>(row), static_cast<int>(column),
          begin(operand, matrix) + row * down + column * right);
    }
    __syncthreads();
  }

  // Where all threads of a group have come; the groups of a warp need not be at the same place.
  BARACUDA_D void sync() const {
    if constexpr (G > warp_size) __syncthreads();
    else if constexpr (G > 1) __syncwarp(mask());
  }
  // Whether a thread of the group says so.
  BARACUDA_D bool any(bool says) const {
    if constexpr (G > warp_size) return __syncthreads_or(says);
    else if constexpr (G > 1) return __any_sync(mask(), says);
    else return says;
  }
  BARACUDA_D u32 mask() const { return full_warp >> (warp_size - G) << (lane_id() / G * G); }

  // act(line) for the group's lines from `from` on up to `to`, a thread's own each.
  template <class F> BARACUDA_D void lines(int from, int to, F act) const {
    for (int line = G == 1 ? from : lane; line < to; line += G) {
      if (line >= from) act(line);
    }
  }

  // What the lines say joined in their order, from 0; all threads of the group have it.
  template <class Say, class Join> BARACUDA_D R told(int count, Say say, Join join) const {
    T* const said = beside();
    lines(0, count, [&](int line) { said[line] = T(say(line)); });
    sync();
    R all(0);
    for (int line = 0; line < count; ++line) all = join(all, real_of(said[line]));
    sync();
    return all;
  }
  template <class Say> BARACUDA_D R largest(int count, Say say) const {
    return told(count, say, [](R x, R y) { return math::maximum(x, y); });
  }
  template <class Say> BARACUDA_D R sum(int count, Say say) const {
    return told(count, say, [](R x, R y) { return x + y; });
  }
};

}  // namespace baracuda
