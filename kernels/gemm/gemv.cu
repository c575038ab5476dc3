// gemv       products with few rows of a, in float or double: each right matrix is read once for up to ROWS rows.
//
// A warp has 4 columns and, of every 128 runs of V = 16 / sizeof(T) neighbouring k, 32. Chain c = 0 … 127 is the fused
// multiply-adds of the runs c, c + 128, … in order; chains are added as a tree, neighbours first: by shuffles within a
// warp, then the block's four warps of the same columns through shared memory. So the order depends on k alone.
#include "gemm/gemv.cuh"
#include <baracuda/reduce.cuh>

namespace baracuda {

// Adds each of N values over the warp, as warp_reduce does, and leaves every lane with a few of the sums:
// x[i], i < N / 32 (or 1), is that of value i + first.
template <int N, class A, int LEFT = N, int MASK = 1> BARACUDA_D void spread_sums(A (&x)[N]) {
  if constexpr (MASK < warp_size) {
    constexpr int half = LEFT / 2;
    const bool upper = (lane_id() & MASK) != 0;
#pragma unroll
    for (int i = 0; i < (half > 0 ? half : 1); ++i) {
      if constexpr (half > 0) {
        const A own = upper ? x[i + half] : x[i], other = upper ? x[i] : x[i + half];
        x[i] = own + shuffle_xor(other, MASK);
      } else {
        x[0] += shuffle_xor(x[0], MASK);
      }
    }
    spread_sums<N, A, (half > 0 ? half : 1), MASK * 2>(x);
  }
}
template <int N> BARACUDA_D int first_of_spread() {
  static_assert(is_pow2(N) && N > 1, "halves");
  return static_cast<int>(__brev(static_cast<u32>(lane_id())) >> (__clz(N) + 1));
}

template <class T, bool GATED, int ROWS, class P> BARACUDA_D void gemv(const P& p) {
  constexpr int V = vec_elems<T>, columns = 4, splits = 4, groups = gemv_threads / warp_size / splits;
  constexpr int rights = GATED ? 2 : 1, values = ROWS * columns, kept = values > warp_size ? values / warp_size : 1;
  __shared__ T partials[rights][groups][splits][values];
  const int warp = static_cast<int>(threadIdx.x) / warp_size, split = warp % splits, group = warp / splits;
  const GemvBlock<ROWS, groups * columns> block(p);
  const BatchOffsets begin(p, block.batch);
  const Epilogue<T, T, T, GATED, P> epilogue(p, begin);
  const GemvRights<T, GATED> right(p, begin);
  const i64 n = block.n0 + group * columns, terms = epilogue.multiplies() ? p.k : 0;
  const i64* const step = p.strides[gemm_matrix::a];
  const T* const a = static_cast<const T*>(p.a) + begin.at[gemm_matrix::a] + block.m0 * step[0];
  const bool wide_a = p.wide >> gemm_matrix::a & 1;
  const int rows = static_cast<int>(min<i64>(ROWS, p.m - block.m0));

  T sum[rights][values] = {};
  for (i64 k = (split * warp_size + lane_id()) * V; k < terms; k += splits * warp_size * V) {
    // Read a run of the right matrices.
    T w[rights][V][columns];
#pragma unroll
    for (int r = 0; r < rights; ++r) {
      const T* const from = right.start[r] + k * right.k_step[r] + n * right.n_step[r];
      if (p.right == gemv_along_n) {
        constexpr int N = V < columns ? V : columns;
#pragma unroll
        for (int j = 0; j < V; ++j)
#pragma unroll
          for (int c = 0; c < columns; c += N) {
            const auto x = gemv_load<T, N>(from + j * right.k_step[r] + c, 1, k + j < p.k ? p.n - n - c : 0, true);
#pragma unroll
            for (int e = 0; e < N; ++e) w[r][j][c + e] = x[e];
          }
      } else {
#pragma unroll
        for (int c = 0; c < columns; ++c) {
          const auto x = gemv_load<T, V>(from + c * right.n_step[r], right.k_step[r], n + c < p.n ? p.k - k : 0,
                                         p.right == gemv_along_k);
#pragma unroll
          for (int j = 0; j < V; ++j) w[r][j][c] = x[j];
        }
      }
    }
    // Multiply the rows of a.
#pragma unroll
    for (int m = 0; m < ROWS; ++m) {
      const auto x = gemv_load<T, V>(a + m * step[0] + k * step[1], step[1], m < rows ? p.k - k : 0, wide_a);
#pragma unroll
      for (int r = 0; r < rights; ++r)
#pragma unroll
        for (int c = 0; c < columns; ++c)
#pragma unroll
          for (int j = 0; j < V; ++j) {
            T& own = sum[r][m * columns + c];
            own = math::fma(x[j], w[r][j][c], own);
          }
    }
  }
  // Add the lanes, and store the warp's partial sums.
#pragma unroll
  for (int r = 0; r < rights; ++r) {
    spread_sums(sum[r]);
#pragma unroll
    for (int i = 0; i < kept; ++i) {
      if (lane_id() < values) partials[r][group][split][first_of_spread<values>() + i] = sum[r][i];
    }
  }
  __syncthreads();
  // Epilogue: add the four warps.
  for (int e = threadIdx.x; e < groups * values; e += gemv_threads) {
    const int from = e / values, value = e % values, m = value / columns;
    const i64 column = block.n0 + from * columns + value % columns;
    if (m >= rows || column >= p.n) continue;
    Vec<T, 1> total, up;
    const auto add = [&](int r) {
      const auto& x = partials[r][from];
      return (x[0][value] + x[1][value]) + (x[2][value] + x[3][value]);
    };
    total[0] = add(0);
    up[0] = GATED ? add(rights - 1) : T(0);
    epilogue.row(block.m0 + m, column, 1, total, up);
  }
}

}  // namespace baracuda
