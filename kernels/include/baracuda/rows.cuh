#pragma once
// rows       addressing for row ops: one row's start in every operand, and elements or chunks within a row.
//
// P is a parameter struct with the fields of `schedules/rows.py: row_params`.
#include <baracuda/index.cuh>
#include <baracuda/vector.cuh>

namespace baracuda {

// Element offsets of row `row` in each of N operands.
template <int N, class P> BARACUDA_D void row_offsets(const P& p, i64 row, i64 (&out)[N]) {
  if (p.outer_rank <= 1) {  // rows merged to one axis: no division
#pragma unroll
    for (int n = 0; n < N; ++n) out[n] = p.outer_rank == 0 ? 0 : row * p.outer[n][0];
  } else {
    offsets<i64, N>(row, p.outer_rank, p.outer_shape, p.outer, out);
  }
}

// Offset of column `col` within a row of operand `n`. DENSE rows have stride 1 in every operand.
template <bool DENSE, class P> BARACUDA_D i64 column_offset(const P& p, int n, i64 col) {
  if constexpr (DENSE) return col;
  else if (p.inner_rank <= 1) return p.inner_rank == 0 ? 0 : col * p.inner[n][0];
  else return offset<i64>(col, p.inner_rank, p.inner_shape, p.inner[n]);
}

// ---- chunks of columns ----------------------------------------------------------------------------------------------

// WIDE kernels: every operand's rows are dense, of whole aligned chunks, and lie along at most two axes. Other kernels
// take any strides and should keep their loops over chunks rolled, as the addresses of a chunk are much code.

// Not inlined: else its divisions would be in the kernel once for every use.
static __device__ __noinline__ i64 general_offset(i64 linear, int rank, const i64* shape, const i64* strides) {
  return offset<i64>(linear, rank, shape, strides);
}

// 16 bytes of a row. Held as words, because a vector of 16-bit elements that is selected or merged over branches is
// split into one register for each element.
using Chunk = Vec<u32, 4>;

template <class T> BARACUDA_D Vec<T, vec_elems<T>> unpack(const Chunk& c) {
  return reinterpret_cast<const Vec<T, vec_elems<T>>&>(c);
}
template <class T> BARACUDA_D Chunk pack(const Vec<T, vec_elems<T>>& v) { return reinterpret_cast<const Chunk&>(v); }

// Makes the compiler forget what it derived from c: a row that several passes read stays packed in registers, where
// otherwise the first pass's conversions would be kept, in twice as many. No instruction.
BARACUDA_D void keep_packed(Chunk& c) { asm volatile("" : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])); }

// A row by its coordinates along at most two row axes, so that no operand's offset needs a division.
template <bool WIDE> struct RowAt {
  u32 outer, inner;
  RowAt() = default;
  template <class P> BARACUDA_D RowAt(const P& p, i64 row) : outer(static_cast<u32>(row)), inner(0) {
    if (p.outer_rank == 2) outer = divmod(static_cast<u32>(row), static_cast<u32>(p.outer_shape[1]), inner);
  }
  template <class P> BARACUDA_D i64 offset(const P& p, int n) const {  // a missing axis has stride 0
    return static_cast<i64>(outer) * p.outer[n][0] + static_cast<i64>(inner) * p.outer[n][1];
  }
};
template <> struct RowAt<false> {
  i64 row;
  RowAt() = default;
  template <class P> BARACUDA_D RowAt(const P&, i64 r) : row(r) {}
  template <class P> BARACUDA_D i64 offset(const P& p, int n) const {
    if (p.outer_rank <= 1) return row * p.outer[n][0];
    return general_offset(row, p.outer_rank, p.outer_shape, p.outer[n]);
  }
};

// VEC columns of any strides.
template <class T, int VEC, Access ACCESS = Access::plain, class P, class L>
BARACUDA_D Vec<T, VEC> load_columns(const P& p, int n, const T* row, i64 col, L left) {
  if (p.inner_rank <= 1) return load_strided<T, VEC, ACCESS>(row + col * p.inner[n][0], p.inner[n][0], left);
  Vec<T, VEC> out;
#pragma unroll 1
  for (int k = 0; k < VEC; ++k)
    out[k] = k < left ? row[general_offset(col + k, p.inner_rank, p.inner_shape, p.inner[n])] : T{};
  return out;
}

// The chunk of T at columns col, col + 1, … of operand `n`, whose row starts at `row`; `left` columns exist from col
// on, what lies beyond is zero and not read.
template <class T, bool WIDE, Access ACCESS = Access::plain, class P, class L>
BARACUDA_D Chunk load_chunk(const P& p, int n, const T* row, i64 col, L left) {
  constexpr int VEC = vec_elems<T>;
  Chunk out{};
  if constexpr (WIDE) {
    if (left > 0) out = load<4, ACCESS>(reinterpret_cast<const u32*>(row + col));
  } else {
    out = pack<T>(load_columns<T, VEC, ACCESS>(p, n, row, col, left));
  }
  return out;
}
template <class T, bool WIDE, Access ACCESS = Access::plain, class P, class L>
BARACUDA_D void store_chunk(const P& p, int n, T* row, i64 col, const Chunk& x, L left) {
  if constexpr (WIDE) {
    if (left > 0) store<ACCESS>(reinterpret_cast<u32*>(row + col), x);
  } else if (p.inner_rank <= 1) {
    store_strided<T, vec_elems<T>, ACCESS>(row + col * p.inner[n][0], p.inner[n][0], unpack<T>(x), left);
  } else {
    const auto v = unpack<T>(x);
#pragma unroll 1
    for (int k = 0; k < vec_elems<T>; ++k)
      if (k < left) row[general_offset(col + k, p.inner_rank, p.inner_shape, p.inner[n])] = v[k];
  }
}

}  // namespace baracuda
