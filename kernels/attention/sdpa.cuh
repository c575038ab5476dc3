#pragma once
// sdpa       rows of a score matrix [batch, heads, queries, keys] in memory: chunks of 16 bytes, dropout.
//
// A row belongs to a group of G threads (softmax/row_groups.cuh): chunk c to thread c % G, G by the row's length and
// element alone. P has query_len, key_len, num_heads (i64), keep_from (i64) and keep_scale, seed() and offset().
#include "gemm/products.cuh"
#include "softmax/row_groups.cuh"
#include <baracuda/philox.cuh>

namespace baracuda::sdpa {

template <class T> using Values = Vec<acc_t<T>, row_vec<T>>;

// Blocks go over the rows from the last: those that the product before has just written, and the product behind begins
// with the first.
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

// Bit k: whether dropout keeps the element of column col + k. Element e of the matrix draws element e of the Philox stream,
// and is kept where its 24-bit word is at least keep_from = ceil(p 2^24): where its uniform is at least p.
template <class T, class P> BARACUDA_D u32 keep_bits(const P& p, u64 seed, u64 offset, i64 row, int col) {
  u32 words[row_vec<T>], bits = 0;
  philox_words<row_vec<T>>(seed, offset, static_cast<u64>(row) * static_cast<u64>(p.key_len) + col, words);
#pragma unroll
  for (int k = 0; k < row_vec<T>; ++k) bits |= static_cast<u32>((words[k] >> 8) >= static_cast<u32>(p.keep_from)) << k;
  return bits;
}

// x / (1 - p) where the bit is set, else 0.
template <class T, class P> BARACUDA_D Values<T> drop(const P& p, u32 bits, const Values<T>& x) {
  Values<T> out;
#pragma unroll
  for (int k = 0; k < row_vec<T>; ++k) out[k] = bits >> k & 1 ? x[k] * static_cast<acc_t<T>>(p.keep_scale) : acc_t<T>(0);
  return out;
}

}  // namespace baracuda::sdpa
