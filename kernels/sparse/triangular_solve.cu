// triangular_solve    x with A x = b, A the lower or upper triangle of a matrix in CSR. A warp a row and four sides.
//
// No levels are found (Liu et al. 2016): a warp reads its row's entries, waits at each for the flag of the row that it
// needs, and sets its own. It waits for rows before its own alone, whose blocks have lower numbers (lookback.cuh). Lane l
// adds entries l, l + 32, … of the row in order, then the lanes are added pairwise: bits depend on the row's entries and
// their places in it, and on nothing else.
#include <baracuda/lookback.cuh>
#include <baracuda/positions.cuh>

#include "linalg/numbers.cuh"

namespace baracuda {

constexpr int solve_sides = 4;

BARACUDA_D void sparse_triangular_clear(const SparseTriangularParams& p) {
  const i64 place = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (place < p.marks) static_cast<u32*>(p.flags)[place] = 0;
}

template <class R> BARACUDA_D R plus(R x, R y) { return x + y; }

template <class T> BARACUDA_D void sparse_triangular_solve(const SparseTriangularParams& p) {
  const int lane = lane_id();
  const i64 row = p.upper ? p.n - 1 - blockIdx.x : blockIdx.x, side = static_cast<i64>(blockIdx.y) * solve_sides;
  const int sides = static_cast<int>(min<i64>(solve_sides, p.sides - side));
  u32* const flags = static_cast<u32*>(p.flags) + blockIdx.y * p.n;
  const T* const values = static_cast<const T*>(p.values);
  T* const x = static_cast<T*>(p.x) + side * p.x_steps[1];
  const auto edge = [&](i64 at) {
    return max<i64>(0, min<i64>(read_index(p.offsets, p.offsets_wide, at * p.offsets_step), p.tokens));
  };
  T pivot{}, sum[solve_sides];
#pragma unroll
  for (int s = 0; s < solve_sides; ++s) sum[s] = T{};
  const i64 end = edge(row + 1);
  for (i64 e = edge(row) + lane; e < end; e += warp_size) {
    const i64 column = read_index(p.columns, p.columns_wide, e * p.columns_step);
    if (column == row) pivot = plus(pivot, values[e * p.values_step]);
    if (p.upper ? column <= row || column >= p.n : column >= row || column < 0) continue;
    const T value = values[e * p.values_step];
    while (seen_flag(flags + column) == 0) {}
#pragma unroll
    for (int s = 0; s < solve_sides; ++s) {
      if (s < sides) sum[s] = plus_product(sum[s], value, x[column * p.x_steps[0] + s * p.x_steps[1]]);
    }
  }
#pragma unroll 1
  for (int mask = 1; mask < warp_size; mask *= 2) {
    pivot = plus(pivot, shuffle_xor(pivot, mask));
#pragma unroll
    for (int s = 0; s < solve_sides; ++s) sum[s] = plus(sum[s], shuffle_xor(sum[s], mask));
  }
  T taken = sum[0];
#pragma unroll
  for (int s = 1; s < solve_sides; ++s) taken = lane == s ? sum[s] : taken;
  if (lane < sides) {
    const T right = static_cast<const T*>(p.b)[row * p.b_steps[0] + (side + lane) * p.b_steps[1]];
    const T left = minus_product(right, taken, T(part_t<T>(1)));
    x[row * p.x_steps[0] + lane * p.x_steps[1]] = p.unit ? left : left / pivot;
  }
  __syncwarp();
  if (lane == 0) pass_turn(flags + row, flag_total);
}

}  // namespace baracuda
