// grouped_gather_simt   y[r] = act(x[rows[r]] b[g] + bias[g]) (x[rows[r]] up[g] + up_bias[g]) for the rows r of each group
//                       g, for any strides: a warp makes one number.
//
// Order of sums: lane l has the products l, l + 32, … of k, in one chain; then the warp's tree.
#include <baracuda/positions.cuh>
#include <baracuda/reduce.cuh>
#include "gemm/grouped.cuh"

namespace baracuda {

// The group of a row, -1 for none: the bounds up to its end are the first that pass the row. By a warp.
template <class P> BARACUDA_D i64 group_of_row(const P& p, i64 row) {
  for (i64 base = 0; base <= p.groups; base += warp_size) {
    const i64 i = base + lane_id();
    const u32 passed = __ballot_sync(full_warp, i <= p.groups && group_bound(p, min(i, p.groups)) > row);
    if (passed != 0) return base + __ffs(static_cast<int>(passed)) - 2;
  }
  return -1;
}

template <class T, bool GATED> BARACUDA_D void grouped_gather_simt(const GroupedGatherSimtParams& p) {
  using A = acc_t<T>;
  using Group = OneGroup<T, GroupedGatherSimtParams>;
  const i64 block = static_cast<i64>(blockIdx.y) * gridDim.x + blockIdx.x;
  const i64 number = block * (gather_threads / warp_size) + threadIdx.x / warp_size;
  if (number >= p.rows * p.n) return;
  u64 rest;
  const i64 row = static_cast<i64>(divmod(static_cast<u64>(number), static_cast<u64>(p.n), rest));
  const i64 column = static_cast<i64>(rest), group = group_of_row(p, row);
  const i64 source = read_index(p.index, p.index_wide, row * p.index_step);
  const bool there = source >= 0 && source < p.sources;
  const auto product = [&](const void* matrix, int which, int place) {
    A sum = A(0);
    if (group >= 0) {
      const i64 *const of_x = p.strides[gemm_matrix::a], *const of_b = p.strides[which];
      const T* const x = static_cast<const T*>(p.a) + (there ? source * of_x[0] : 0);
      const T* const b = static_cast<const T*>(matrix) + group * p.group_strides[place] + column * of_b[1];
      for (i64 i = lane_id(); i < p.k; i += warp_size)
        sum = math::fma(there ? to_acc(x[i * of_x[1]]) : A(0), to_acc(b[i * of_b[0]]), sum);
    }
    return Vec<A, 1>{{warp_reduce<Sum>(sum)}};
  };
  const auto sum = product(p.b, gemm_matrix::b, 0);
  const auto up = GATED ? product(p.up, gemm_matrix::up, 1) : sum;
  if (lane_id() != 0) return;
  const Group own(p, {group, row, column, row + 1});
  const Epilogue<T, T, A, GATED, Group> epilogue(own, BatchOffsets(own, 0));
  epilogue.row(row, column, i64(1), sum, up);
}

}  // namespace baracuda
