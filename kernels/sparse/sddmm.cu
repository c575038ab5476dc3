// sddmm     y[e] = alpha Σ_k a[row(e), k] b[column(e), k] + beta c[e] of the entries e of a sparse matrix
//
// A block finds the rows of a tile of entries, then a group of lanes takes neighbouring ones, four rows of b in flight.
// The group keeps its piece of a's row while entries are of that row. A lane has the same columns in every layout, 16
// bytes of each chunk; the number of lanes follows from the number of columns and the element, and fixes with them the
// order of the sum: chunks in order, then the lanes pairwise.
#include <baracuda/reduce.cuh>
#include <baracuda/wanted.cuh>

#include "segment/combine.cuh"

namespace baracuda {

template <class T, int VEC, class P> BARACUDA_D void sddmm(const P& p) {
  using A = acc_t<T>;
  constexpr int own = 16 / static_cast<int>(sizeof(T)), flight = 4;
  __shared__ i64 row_of[sddmm_entries], column_of[sddmm_entries];
  const i64 first = static_cast<i64>(blockIdx.x) * sddmm_entries;
  const int count = static_cast<int>(min<i64>(sddmm_entries, p.tokens - first));
  for (int i = threadIdx.x; i < sddmm_entries; i += sddmm_threads) {
    i64 row = -1, at = -1;
    if (i < count) {
      row = token_segment(p, first + i);
      at = read_index(p.src, (first + i) * p.src_step, p.src_wide);
      const bool exists = at >= 0 && at < p.rows;
      if (!exists && p.status != nullptr) atomicOr(p.status, 1u);
      if (!exists || row < 0) row = -1, at = -1;
    }
    row_of[i] = row, column_of[i] = at;
  }
  __syncthreads();
  const int lanes = p.lanes, share = sddmm_entries / (sddmm_threads / lanes);
  const int group = static_cast<int>(threadIdx.x) / lanes, lane = static_cast<int>(threadIdx.x) % lanes;
  const T* b = static_cast<const T*>(p.x);
  const T* a = static_cast<const T*>(p.h);
  for (int base = group * share; base < (group + 1) * share; base += flight) {  // as often in every lane of a warp
    A sum[flight];
#pragma unroll
    for (int u = 0; u < flight; ++u) sum[u] = A(0);
    for (i64 chunk = static_cast<i64>(lane) * own; chunk < p.dim; chunk += lanes * own) {
#pragma unroll 1
      for (int piece = 0; piece < own; piece += VEC) {
        const i64 k = chunk + piece;
        if (k >= p.dim) break;
        const i64 b_column = column_at<VEC>(p, 1, k), a_column = column_at<VEC>(p, 4, k);
        Packed<T, VEC> theirs[flight], mine[flight];
        bool changes[flight];
#pragma unroll
        for (int u = 0; u < flight; ++u) {
          const i64 row = row_of[base + u], column = column_of[base + u];
          changes[u] = u == 0 || row != row_of[base + u - 1];
          theirs[u].load_if(b + (column * p.x_row + b_column), row >= 0);
          mine[u].load_if(a + (row * p.h_row + a_column), row >= 0 && changes[u]);
        }
#pragma unroll
        for (int u = 0; u < flight; ++u) {
          if (u > 0 && !changes[u]) mine[u] = mine[u > 0 ? u - 1 : 0];
          const auto x = to_acc(mine[u].unpacked()), y = to_acc(theirs[u].unpacked());
#pragma unroll
          for (int i = 0; i < VEC; ++i) sum[u] = math::fma(x[i], y[i], sum[u]);
        }
      }
    }
#pragma unroll 1
    for (int mask = 1; mask < lanes; mask *= 2) {
#pragma unroll
      for (int u = 0; u < flight; ++u) sum[u] += shuffle_xor(sum[u], mask);
    }
    if (lane < flight && base + lane < count) {
      A dot = sum[0];
#pragma unroll
      for (int u = 1; u < flight; ++u) dot = lane == u ? sum[u] : dot;
      const i64 entry = first + base + lane;
      dot *= static_cast<A>(p.alpha());
      if (p.z != nullptr) {
        dot = math::fma(static_cast<A>(p.beta()), to_acc(static_cast<const T*>(p.z)[entry * p.z_row]), dot);
      }
      static_cast<T*>(p.y)[entry * p.y_row] = from_acc<T>(dot);
    }
  }
}

}  // namespace baracuda
