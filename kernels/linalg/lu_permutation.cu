// lu_permutation    The order of rows after the swaps i <-> pivots[i] - first, i = 0, 1, …; inverse: the last i first.
//
// Dense vectors, a block for each. Its threads count the rows, then one of them swaps: each swap needs the one before.
// A pivot that names no row swaps nothing. No sums.
#include <baracuda/types.cuh>

namespace baracuda {

BARACUDA_D void lu_permutation(const LuPermutationParams& p) {
  const i64 matrix = blockIdx.x;
  int* const order = static_cast<int*>(p.permutation) + matrix * p.rows;
  const int* const pivots = static_cast<const int*>(p.pivots) + matrix * p.count;
  for (i64 i = threadIdx.x; i < p.rows; i += blockDim.x) order[i] = static_cast<int>(i);
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (i64 step = 0; step < p.count; ++step) {
    const i64 i = p.inverse ? p.count - 1 - step : step;
    const i64 j = static_cast<i64>(pivots[i]) - p.first;
    if (j < 0 || j >= p.rows) continue;
    const int held = order[i];
    order[i] = order[j];
    order[j] = held;
  }
}

}  // namespace baracuda
