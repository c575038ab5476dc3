#pragma once
// transpose_tile   a tile of 64 x 64 of x: a thread has 16 columns of a row, and later 16 rows of a column.
//
// P has row_params of y and x, and yt_column and yt_row, the strides of yt. WIDE: rows of x, y and yt lie in whole aligned
// pieces of 16 elements.
#include <baracuda/quantize.cuh>
#include <baracuda/rows.cuh>

namespace baracuda {

namespace transposing {

constexpr int side = transposing_side, each = transposing_each, threads = side * side / each;
enum Operand { AT_CODES, AT_VALUES };

// A thread's piece of operand n.
template <class T, bool WIDE, class P>
BARACUDA_D Vec<float, each> values_at(const P& p, int n, const void* from, i64 row, i64 column, bool there) {
  Vec<float, each> v{};
  if (!there) return v;
  const T* const x = static_cast<const T*>(from) + RowAt<WIDE>(p, row).offset(p, n);
  if constexpr (WIDE) return to_acc(load<each>(x + column));
  else return to_acc(load_columns<T, each>(p, n, x, column, p.cols - column));
}
template <class T, bool WIDE, class P>
BARACUDA_D Vec<float, each> values_of(const P& p, i64 row, i64 column, bool there) {
  return values_at<T, WIDE>(p, AT_VALUES, p.x, row, column, there);
}

// `part`: where in y, and in yt, the matrix begins whose codes these are.
template <bool WIDE, class P>
BARACUDA_D void put_row(const P& p, i64 row, i64 column, const Vec<u8, each>& codes, i64 part = 0) {
  u8* const y = static_cast<u8*>(p.y) + part + RowAt<WIDE>(p, row).offset(p, AT_CODES);
  if constexpr (WIDE) {
    store(y + column, codes);
  } else {
#pragma unroll 1
    for (int k = 0; k < each && column + k < p.cols; ++k) {
      y[column_offset<false>(p, AT_CODES, column + k)] = codes[k];
    }
  }
}

template <bool WIDE, class P>
BARACUDA_D void put_column(const P& p, i64 row, i64 column, const Vec<u8, each>& codes, i64 part = 0) {
  u8* const yt = static_cast<u8*>(p.yt) + part + column * p.yt_column;
  if constexpr (WIDE) store(yt + row, codes);
  else store_strided(yt + row * p.yt_row, p.yt_row, codes, p.rows - row);
}

}  // namespace transposing

}  // namespace baracuda
