// gemm       alpha · a b and its epilogue E (gemm/epilogue.cuh) for any strides, without tensor cores.
//
// A block computes a tile of 64 x 64. Each sum is one chain of fused multiply-adds in the order of k.
#include "gemm/epilogue.cuh"
#include "gemm/tile.cuh"

namespace baracuda {

template <class T, class U, bool GATED, class E = Epilogue<U, T, acc_t<T>, GATED, GemmParams>>
BARACUDA_D void gemm(const GemmParams& p) {
  using A = acc_t<T>;
  const GemmTile tile(p);
  const BatchOffsets begin(p, tile.batch);
  const E epilogue(p, begin);
  const auto matrix = [&](const void* start, int which) { return static_cast<const T*>(start) + begin.at[which]; };
  const T* b[GATED ? 2 : 1];
  b[0] = matrix(p.b, gemm_matrix::b);
  if constexpr (GATED) b[1] = matrix(p.up, gemm_matrix::up);
  gemm_tile<0>(p, tile, matrix(p.a, gemm_matrix::a), b, epilogue.multiplies(), [&](i64 m, i64 n, const auto& sums) {
    Vec<A, 1> sum, up;
    sum[0] = sums[0];
    up[0] = GATED ? sums[GATED] : A(0);
    epilogue.row(m, n, 1, sum, up);
  });
}

}  // namespace baracuda
