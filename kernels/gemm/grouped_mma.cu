// grouped_mma    products of groups of rows on tensor cores, of f16 or bf16 with sums in float (gemm/mma.cuh, which says
//                what fixes the order of sums).
//
//   grouped_gemm_mma      y[r] = a[r] b[g] for the rows r of each group g, with the epilogue of gemm/epilogue.cuh
//   grouped_product_mma   y[g] = a[:, r] b[r] over the rows r of b, and columns of a, of group g
//
// A_K, B_K: whether k, else the other axis, has stride 1 in a and b.
#include "gemm/grouped.cuh"
#include "gemm/mma.cuh"

namespace baracuda {

constexpr int row_piece = 32;  // slices of a piece of a group's rows

template <class T, class U, bool A_K, bool B_K, bool GATED, int SIZE, class P>
BARACUDA_D void grouped_gemm_mma(const P& p) {
  using Tile = MmaTile<T, A_K, B_K, GATED, SIZE>;
  using Group = OneGroup<T, P>;
  BARACUDA_DYNAMIC_SMEM(T, ring);
  const GroupTiles<Tile::rows, Tile::cols, Tile::threads> tiles;
  while (tiles.find(p)) {
    // Multiply; rows in no group have no product.
    Tile tile;
    if (const GroupTile at = tiles.tile(); at.group >= 0) {
      const auto wide = [&](int which) { return (p.wide >> which & 1) != 0; };
      const auto right = [&](const void* start, int which, int place) {
        const i64* const step = p.strides[which];
        const T* const matrix = static_cast<const T*>(start) + at.group * p.group_strides[place];
        return typename Tile::Right(matrix, step[1], step[0], at.n0, p.n, wide(which));
      };
      const i64* const step = p.strides[gemm_matrix::a];
      const bool whole = wide(gemm_matrix::a) && (A_K || at.m0 % vec_elems<T> == 0);
      const typename Tile::Left a(static_cast<const T*>(p.a), step[0], step[1], at.m0, at.end, whole);
      if constexpr (GATED) {
        typename Tile::Right b[2] = {right(p.b, gemm_matrix::b, 0), right(p.up, gemm_matrix::up, 1)};
        tile.add(ring, a, b, p.k, p.piece);
      } else {
        typename Tile::Right b[1] = {right(p.b, gemm_matrix::b, 0)};
        tile.add(ring, a, b, p.k, p.piece);
      }
    }
    __syncthreads();
    // Epilogue.
    const GroupTile at = tiles.tile();  // again: registers have no room for it until here
    const Group group(p, at);
    const BatchOffsets begin(group, 0);
    const Epilogue<U, T, float, GATED, Group> epilogue(group, begin);
    tile.finish(ring, [&](int row, int col, const auto& sum, const auto& up) {
      const i64 m = at.m0 + row, n = at.n0 + col;
      if (m < at.end && n < p.n) epilogue.row(m, n, p.n - n, sum, up);
    });
    __syncthreads();  // the next tile's copies write where warps may still read
  }
}

template <class T, class U, bool A_K, bool B_K, class P> BARACUDA_D void grouped_product_mma(const P& p) {
  using Tile = MmaTile<T, A_K, B_K, false, 128>;
  BARACUDA_DYNAMIC_SMEM(T, ring);
  const i64 tiles_m = div_up(p.m, i64(Tile::rows)), tiles_n = div_up(p.n, i64(Tile::cols)), block = blockIdx.x;
  const i64 m0 = block % tiles_m * Tile::rows, n0 = block / tiles_m % tiles_n * Tile::cols;
  const i64 group = block / (tiles_m * tiles_n);
  const GroupRows<Tile::threads> rows(p, group);
  // Where k is along memory, a group may begin in the middle of 16 bytes.
  const bool whole = rows.begin % vec_elems<T> == 0, wide_a = (p.wide & 1) && (!A_K || whole);
  const bool wide_b = (p.wide & 2) && (!B_K || whole);
  const i64 *const of_a = p.strides[0], *const of_b = p.strides[1], *const of_y = p.strides[2];
  const T* const a = static_cast<const T*>(p.a) + rows.begin * of_a[1];
  const T* const b = static_cast<const T*>(p.b) + rows.begin * of_b[0];
  const typename Tile::Left left(a, of_a[0], of_a[1], m0, p.m, wide_a);
  typename Tile::Right right[1] = {typename Tile::Right(b, of_b[1], of_b[0], n0, p.n, wide_b)};
  // Multiply.
  Tile tile;
  tile.add(ring, left, right, rows.end - rows.begin, row_piece);
  // Store.
  U* const y = static_cast<U*>(p.y) + group * p.group_stride;
  tile.finish(ring, [&](int row, int col, const auto& sum, const auto&) {
    const i64 m = m0 + row, n = n0 + col;
    if (m >= p.m || n >= p.n) return;
    U* const to = y + m * of_y[0] + n * of_y[1];
    const auto rounded = from_acc<U>(sum);
    if (p.wide & 4) store_vec<U, 8, true>(to, rounded, p.n - n);
    else store_strided(to, of_y[1], rounded, p.n - n);
  });
}

}  // namespace baracuda
