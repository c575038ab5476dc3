#pragma once
// products   the kernels that `schedules/products.py` launches beside cuBLAS: batched products, and copies of
//            [batch, heads, rows, cols].
#include "gemm/tile.cuh"
#include <baracuda/vector.cuh>

namespace baracuda {

// y[s] = alpha a[s] b[s] for every s of a batch, summed in chains of PIECE, added in order.
template <class T, int PIECE, class P> BARACUDA_D void product(const P& p) {
  using A = acc_t<T>;
  const GemmTile tile(p);
  T* const y = static_cast<T*>(p.y) + tile.batch * p.batch[2];
  const T* const b[1] = {static_cast<const T*>(p.b) + tile.batch * p.batch[1]};
  const A alpha = static_cast<A>(p.alpha);
  gemm_tile<PIECE>(p, tile, static_cast<const T*>(p.a) + tile.batch * p.batch[0], b, true,
                   [&](i64 m, i64 n, const A(&sum)[1]) {
                     y[m * p.strides[3][0] + n * p.strides[3][1]] = from_acc<T>(alpha * sum[0]);
                   });
}

// A row of [batch, heads, rows] by its linear index.
struct HeadRow {
  i64 batch, head, row;
  BARACUDA_D HeadRow(i64 linear, i64 heads, i64 rows) {
    u64 h, r;
    batch = static_cast<i64>(
        divmod(divmod(static_cast<u64>(linear), static_cast<u64>(rows), r), static_cast<u64>(heads), h));
    head = static_cast<i64>(h), row = static_cast<i64>(r);
  }
  BARACUDA_D i64 offset(const i64* stride) const { return batch * stride[0] + head * stride[1] + row * stride[2]; }
};

// The thread's piece of 16 bytes of P's rows, each of `cols` elements; row is P's `rows` or more where it has none.
template <class T> struct RowPiece {
  i64 row, col, left;  // the first column, and how many there are from it on
  template <class P> BARACUDA_D explicit RowPiece(const P& p) {
    const u64 pieces = static_cast<u64>(div_up(p.cols, vec_elems<T>));
    u64 piece;
    row = static_cast<i64>(divmod(static_cast<u64>(thread_index<i64>()), pieces, piece));
    col = static_cast<i64>(piece) * vec_elems<T>, left = p.cols - col;
  }
};

// y = x, one thread for each piece.
template <class T, class P> BARACUDA_D void copy_rows(const P& p) {
  constexpr int V = vec_elems<T>;
  const RowPiece<T> piece(p);
  if (piece.row >= p.rows) return;
  const HeadRow at(piece.row, p.num_heads, p.row_count);
  const T* x = static_cast<const T*>(p.x) + at.offset(p.stride[0]) + piece.col;
  T* y = static_cast<T*>(p.y) + at.offset(p.stride[1]) + piece.col;
  const auto v = p.wide & 1 ? load_vec<T, V, true>(x, piece.left) : load_vec<T, V, false>(x, piece.left);
  if (p.wide & 2) store_vec<T, V, true>(y, v, piece.left);
  else store_vec<T, V, false>(y, v, piece.left);
}

}  // namespace baracuda
