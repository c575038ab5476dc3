// grouped_sums   y[g] = Σ b[r] over the rows r of group g.
//
// A block has 32 columns of a group. Each sum is 8 chains of every eighth row, added in order: the bits of a group do not
// depend on the other groups.
#include "gemm/groups.cuh"

namespace baracuda {

template <class T, class U, class P> BARACUDA_D void grouped_sums(const P& p) {
  using A = acc_t<T>;
  constexpr int threads = 256, columns = warp_size, chains = threads / columns;
  __shared__ A sums[chains][columns];
  const i64 tiles = div_up(p.n, i64(columns)), group = blockIdx.x / tiles;
  const GroupRows<threads> rows(p, group);
  const int lane = lane_id(), chain = static_cast<int>(threadIdx.x) / warp_size;
  const i64 n = blockIdx.x % tiles * columns + lane;
  A sum = A(0);
  if (n < p.n) {
    const T* const b = static_cast<const T*>(p.b) + n * p.strides[1][1];
#pragma unroll 4
    for (i64 r = rows.begin + chain; r < rows.end; r += chains) sum += to_acc(b[r * p.strides[1][0]]);
  }
  sums[chain][lane] = sum;
  __syncthreads();
  if (chain != 0 || n >= p.n) return;
#pragma unroll
  for (int c = 1; c < chains; ++c) sum += sums[c][lane];
  static_cast<U*>(p.y)[group * p.group_stride + n * p.strides[2][1]] = from_acc<U>(sum);
}

}  // namespace baracuda
