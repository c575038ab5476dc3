#pragma once
// sdpa       rows of a score matrix [batch, heads, queries, keys] in memory: chunks of 16 bytes, dropout.
//
// A row belongs to a group of G threads (softmax/row_groups.cuh), chunk c to thread c % G; G depends on the row's
// length and the element alone. P has query_len, key_len, num_heads (i64), keep_from (i64) and keep_scale, seed() and
// offset().
#include "gemm/products.cuh"
#include "softmax/row_groups.cuh"
#include <baracuda/philox.cuh>

namespace baracuda::sdpa {

template <class T> using Values = Vec<acc_t<T>, row_vec<T>>;

// Blocks take the rows from the last to the first: the product before has just written the last ones, and the product
// after begins with the first, so both find them in the L2 cache.
BARACUDA_D i64 block() { return static_cast<i64>(gridDim.x) - 1 - blockIdx.x; }

template <class T> BARACUDA_D void read(RowChunk<T>& out, const T* row, int col, int end, bool wide) {
  const T zero = cast<T>(0.0f);
  if (wide) read_chunk<group_wide>(out, row, 1, col, end, zero);
  else read_chunk<group_strided>(out, row, 1, col, end, zero);
}

template <class T> BARACUDA_D void write(T* row, int col, int end, const Values<T>& x, bool wide) {
  if (col >= end) return;
  const RowChunk<T> out = from_acc<T>(x);
  if (wide) store_vec<T, row_vec<T>, true>(row + col, out, end - col);
  else store_vec<T, row_vec<T>, false>(row + col, out, end - col);
}

// Bit k: whether dropout keeps the element of column col + k. Element e of the matrix has number e of the Philox
// stream; it is kept where its 24-bit word is at least keep_from = ceil(p 2^24), that is, where its uniform number is
// at least p.
template <class T, class P> BARACUDA_D u32 keep_bits(const P& p, u64 seed, u64 offset, i64 row, int col) {
  u32 words[row_vec<T>], bits = 0;
  philox_words<row_vec<T>>(seed, offset, static_cast<u64>(row) * static_cast<u64>(p.key_len) + col, words);
#pragma unroll
  for (int k = 0; k < row_vec<T>; ++k) bits |= static_cast<u32>((words[k] >> 8) >= static_cast<u32>(p.keep_from)) << k;
  return bits;
}

// x / (1 - p) where the bit is set, else x times 0, which is NaN where x is not finite.
template <class T, class P> BARACUDA_D Values<T> drop(const P& p, u32 bits, const Values<T>& x) {
  Values<T> out;
#pragma unroll
  for (int k = 0; k < row_vec<T>; ++k)
    out[k] = x[k] * (bits >> k & 1 ? static_cast<acc_t<T>>(p.keep_scale) : acc_t<T>(0));
  return out;
}

enum Mask { mask_none = 0, mask_element = 1, mask_f32 = 2, mask_bool = 3 };

// Whether key `col` is hidden from a row whose mask starts at `at`. P is that of sdpa_mend.
template <class T, class P> BARACUDA_D bool hidden(const P& p, i64 at, i64 row, i64 col) {
  if (p.causal && col > row + p.shift) return true;
  const i64 place = at + col * p.mask_stride[3];
  if (p.mask_kind == mask_bool) return !static_cast<const u8*>(p.mask)[place];
  if (p.mask_kind == mask_f32) return static_cast<const float*>(p.mask)[place] == -numeric<float>::infinity();
  return p.mask_kind == mask_element && to_acc(static_cast<const T*>(p.mask)[place]) == -numeric<acc_t<T>>::infinity();
}

}  // namespace baracuda::sdpa

namespace baracuda {

// Recomputes y = alpha * weights values where a product made it NaN: in the order of the keys, without those that are
// hidden, or with by_zero without those whose weight is 0. A thread takes a piece of 16 bytes and nearly always only
// tests it.
template <class T, class P> BARACUDA_D void sdpa_mend(const P& p) {
  using A = acc_t<T>;
  constexpr int V = vec_elems<T>;
  const RowPiece<T> piece(p);
  if (piece.row >= p.rows) return;
  const HeadRow at(piece.row, p.num_heads, p.query_len);
  T* const y = static_cast<T*>(p.y) + at.offset(p.stride[0]) + piece.col;
  const auto found = to_acc(p.wide ? load_vec<T, V, true>(y, piece.left) : load_vec<T, V, false>(y, piece.left));
  bool whole = true;
#pragma unroll
  for (int k = 0; k < V; ++k) whole = whole && !math::isnan(found[k]);
  if (whole) return;
  const T* const weights = static_cast<const T*>(p.weights) + at.offset(p.stride[1]);
  const T* const values =
      static_cast<const T*>(p.values) + at.batch * p.stride[2][0] + at.head / p.group * p.stride[2][1] + piece.col;
  const i64 mask_at = at.batch * p.mask_stride[0] + at.head * p.mask_stride[1] + at.row * p.mask_stride[2];
#pragma unroll 1
  for (int k = 0; k < V && k < piece.left; ++k) {
    if (!math::isnan(to_acc(y[k]))) continue;
    A sum = 0;
#pragma unroll 1
    for (i64 key = 0; key < p.key_len; ++key) {
      const A weight = to_acc(weights[key]);
      const bool apart = p.by_zero ? weight == A(0) : sdpa::hidden<T>(p, mask_at, at.row, key);
      if (!apart) sum = math::fma(weight, to_acc(values[key * p.stride[2][2] + k]), sum);
    }
    y[k] = from_acc<T>(static_cast<A>(p.alpha) * sum);
  }
}

}  // namespace baracuda
