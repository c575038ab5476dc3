// grouped_gemm   products of groups of rows, each with a matrix of its own, for any strides, without tensor cores.
//
//   grouped_gemm      y[r] = a[r] b[g] for the rows r of each group g, with the epilogue of gemm/epilogue.cuh
//   grouped_product   y[g] = a[:, r] b[r] over the rows r of b, and columns of a, of group g
//
// Each sum is one chain of fused multiply-adds in the order of k, or of the rows of the group: the bits of a group do
// not depend on the other groups.
#include "gemm/grouped.cuh"
#include "gemm/tile.cuh"

namespace baracuda {

constexpr int group_threads = 256;

template <class T, class U, bool GATED, class P> BARACUDA_D void grouped_gemm(const P& p) {
  using A = acc_t<T>;
  using Group = OneGroup<T, P>;
  const GroupTiles<GemmTile::size, GemmTile::size, group_threads> tiles;
  while (tiles.find(p)) {
    const GroupTile tile = tiles.tile();
    const Group group(p, tile);
    const BatchOffsets begin(group, 0);
    const Epilogue<U, T, A, GATED, Group> epilogue(group, begin);
    const i64 at = group.some ? tile.group : 0;
    const T* b[GATED ? 2 : 1];
    b[0] = static_cast<const T*>(p.b) + at * p.group_strides[0];
    if constexpr (GATED) b[1] = static_cast<const T*>(p.up) + at * p.group_strides[1];
    gemm_tile<0>(group, GemmTile(tile.m0, tile.n0), static_cast<const T*>(p.a), b, epilogue.multiplies(),
                 [&](i64 m, i64 n, const auto& sums) {
                   Vec<A, 1> sum, up;
                   sum[0] = sums[0];
                   up[0] = GATED ? sums[GATED] : A(0);
                   epilogue.row(m, n, 1, sum, up);
                 });
  }
}

// A group's part of the product, as gemm_tile reads it.
struct OneProduct {
  const i64 (&strides)[3][2];
  const i64 m, n, k;
  const int a_cols_dense, b_cols_dense;
};

template <class T, class U, class P> BARACUDA_D void grouped_product(const P& p) {
  const GemmTile tile(p);
  const GroupRows<group_threads> rows(p, tile.batch);
  const OneProduct one{p.strides, p.m, p.n, rows.end - rows.begin, p.a_cols_dense, p.b_cols_dense};
  const T* const b[1] = {static_cast<const T*>(p.b) + rows.begin * p.strides[1][0]};
  U* const y = static_cast<U*>(p.y) + tile.batch * p.group_stride;
  gemm_tile<0>(one, tile, static_cast<const T*>(p.a) + rows.begin * p.strides[0][1], b, true,
               [&](i64 m, i64 n, const acc_t<T>(&sum)[1]) {
                 y[m * p.strides[2][0] + n * p.strides[2][1]] = from_acc<U>(sum[0]);
               });
}

}  // namespace baracuda
