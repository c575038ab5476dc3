#pragma once
// terms      softmax over terms z that a functor makes of its operands, chunk by chunk: scaled, masked, with noise.
//
// TERMS is a functor of one row, made of (p, row): `element` (which fixes the chunks), `read(col)`, what lies in memory at
// the columns col …, of type Raw, `terms(col, raw)`, their z, with -inf beyond the row's end, and `put(col, y, first)`,
// which writes results; `first` is the first column of the largest z where `hard()` asks for it. To read is apart from
// the rest so that all chunks of a thread are on their way before the first is used. P has the fields of `term_params`,
// and log and safe: whether a row of only -inf is zeros (log: -inf) instead of NaN.
// terms_rows: a group of G threads holds a row in registers, K chunks a thread: one read. terms_long: a block for each
// row, an online softmax, then the terms again. Sums are a tree within a chunk, in order over a thread's chunks, then a
// tree over the threads.
#include "softmax/row_groups.cuh"

namespace baracuda {

template <class E, int V> BARACUDA_D void copy_words(Vec<E, V>& to, const Vec<E, V>& from) {
  if constexpr (sizeof(to) % 4 == 0) {
#pragma unroll
    for (int k = 0; k < static_cast<int>(sizeof(to) / 4); ++k) {
      reinterpret_cast<u32*>(&to)[k] = reinterpret_cast<const u32*>(&from)[k];
    }
  } else {
    to = from;
  }
}

// Columns col … of a row, `left` of which exist. wide: whole chunks are aligned runs. WHOLE: of all operands, and no row
// ends within a chunk: one load, without the code of the other ways, whose registers would be taken in any case.
// They are held as words, as chunks are in row_groups.cuh, until `unpacked` or `byte_of`.
template <bool WHOLE, int V, class E>
BARACUDA_D void read_columns(Vec<E, V>& out, const E* row, i64 step, i64 col, i64 left, bool wide) {
  if constexpr (WHOLE) {
    copy_words(out, left > 0 ? load<V>(row + col) : Vec<E, V>{});
  } else if (wide && left >= V) {
    copy_words(out, load<V>(row + col));
  } else {
    Vec<E, V> some = load_strided<E, V>(row + col * step, step, left);
    if constexpr (sizeof(some) % 4 == 0) forget(some);
    copy_words(out, some);
  }
}
template <int V, class E> BARACUDA_D Vec<acc_t<E>, V> unpacked(const Vec<E, V>& x) {
  if constexpr (V == row_vec<E>) return unpack_chunk<E>(x);
  else return to_acc(x);
}
// How many of V columns from col on there are up to `end`: 0 … V.
template <bool WHOLE, int V> BARACUDA_D int columns_before(i64 end, i64 col) {
  if constexpr (WHOLE) return end > col ? V : 0;
  else return static_cast<int>(max<i64>(0, min<i64>(V, end - col)));
}
template <int V> BARACUDA_D bool byte_of(const Vec<u8, V>& x, int k) {
  if constexpr (V % 4 == 0) return reinterpret_cast<const u32*>(&x)[k / 4] & 0xffu << 8 * (k % 4);
  else return x[k];
}
template <bool WHOLE, int V, class E>
BARACUDA_D void write_columns(E* row, i64 step, i64 col, i64 left, bool wide, const Vec<E, V>& x) {
  if (WHOLE || (wide && left >= V)) store_streaming(row + col, x);
  else store_strided<E, V>(row + col * step, step, x, left);
}

// exp(z) for z <= 0 or NaN, to the precision of what is written.
template <class OUT, class A> BARACUDA_D A term_exp(A z) {
  if constexpr (is_half<OUT>) return row_exp<OUT>(z);
  else return math::exp(z);
}

// From a row's maximum and the sum of exp(z - base): results are exp(z - base) * factor, or (z - base) - factor.
template <class A> struct RowScale {
  A base, factor;
};
template <class A> BARACUDA_D RowScale<A> row_scale(A max, A sum, bool log, bool safe) {
  const bool empty = max == -numeric<A>::infinity();
  if (empty) sum = safe ? A(1) : numeric<A>::nan();
  return {empty ? A(0) : max, log ? math::log(sum) : A(1) / sum};
}

template <class OUT, class A, int V> BARACUDA_D Vec<A, V> term_results(Vec<A, V> z, const RowScale<A>& row, bool log) {
#pragma unroll
  for (int k = 0; k < V; ++k) {
    const A d = z[k] - row.base;
    z[k] = log ? d - row.factor : term_exp<OUT>(d) * row.factor;
  }
  return z;
}

// The smallest column of a chunk whose z is `top`; `none` if there is none.
template <class A, int V> BARACUDA_D i64 first_of(const Vec<A, V>& z, i64 col, A top, i64 none) {
#pragma unroll
  for (int k = V - 1; k >= 0; --k) {
    if (z[k] == top) none = col + k;
  }
  return none;
}

template <class TERMS, int G, int K, class P> BARACUDA_D void terms_rows(const P& p) {
  using T = typename TERMS::element;
  using A = acc_t<T>;
  constexpr int V = row_vec<T>, groups = group_block(G) / G;
  const int lane = static_cast<int>(threadIdx.x) % G, group = static_cast<int>(threadIdx.x) / G;
  const i64 row = static_cast<i64>(blockIdx.x) * groups + group, cols = p.cols;
  const bool valid = row < p.rows;
  const TERMS terms(p, valid ? row : 0);
  auto column = [&](int j) { return valid ? static_cast<i64>(j * G + lane) * V : cols; };

  typename TERMS::Raw raw[K];
#pragma unroll
  for (int j = 0; j < K; ++j) raw[j] = terms.read(column(j));
  Vec<A, V> z[K];
  A top = -numeric<A>::infinity();
#pragma unroll
  for (int j = 0; j < K; ++j) z[j] = terms.terms(column(j), raw[j]);
#pragma unroll
  for (int j = 0; j < K; ++j) top = math::maximum(top, tree_reduce<Max>(z[j]));
  top = row_reduce<Max, G>(top);
  i64 first = cols;
  if (terms.hard()) {
#pragma unroll
    for (int j = K - 1; j >= 0; --j) first = first_of(z[j], column(j), top, first);
    first = row_reduce<Min, G>(first);
  }
  const A base = top == -numeric<A>::infinity() ? A(0) : top;
  A sum = 0;
#pragma unroll
  for (int j = 0; j < K; ++j) {
    Vec<A, V> e;
#pragma unroll
    for (int k = 0; k < V; ++k) e[k] = term_exp<typename TERMS::result>(z[j][k] - base);
    sum += tree_reduce<Sum>(e);
  }
  const auto scale = row_scale(top, row_reduce<Sum, G>(sum), p.log, p.safe);
#pragma unroll
  for (int j = 0; j < K; ++j) {
    if (column(j) < cols) terms.put(column(j), term_results<typename TERMS::result>(z[j], scale, p.log), first);
  }
}

template <class TERMS, class P> BARACUDA_D void terms_long(const P& p) {
  using T = typename TERMS::element;
  using A = acc_t<T>;
  constexpr int G = long_group, K = 2, V = row_vec<T>;
  const i64 cols = p.cols;
  const TERMS terms(p, blockIdx.x);
  const int slabs = static_cast<int>(div_up<i64>(cols, G * V));
  auto column = [&](int slab) { return (static_cast<i64>(slab) * G + threadIdx.x) * V; };

  MaxSum<A> state{-numeric<A>::infinity(), A(0)};
  i64 first = cols;  // of this thread's largest z
#pragma unroll 1
  for (int start = 0; start < slabs; start += K) {
    typename TERMS::Raw raw[K];
#pragma unroll
    for (int j = 0; j < K; ++j) raw[j] = terms.read(column(start + j));
    Vec<A, V> z[K];
#pragma unroll
    for (int j = 0; j < K; ++j) z[j] = terms.terms(column(start + j), raw[j]);
    A top = state.max;
#pragma unroll
    for (int j = 0; j < K; ++j) top = math::maximum(top, tree_reduce<Max>(z[j]));
    if (terms.hard() && top > state.max) {
#pragma unroll
      for (int j = K - 1; j >= 0; --j) first = first_of(z[j], column(start + j), top, first);
    }
    const A base = top == -numeric<A>::infinity() ? A(0) : top;
    A sum = state.sum * math::exp(state.max - base);
#pragma unroll
    for (int j = 0; j < K; ++j) {
#pragma unroll
      for (int k = 0; k < V; ++k) z[j][k] = term_exp<typename TERMS::result>(z[j][k] - base);
      sum += tree_reduce<Sum>(z[j]);
    }
    state = {top, sum};
  }
  const MaxSum<A> all = block_reduce<LogSumExp, G>(state);
  if (terms.hard()) first = block_reduce<Min, G>(state.max == all.max ? first : cols);
  const auto scale = row_scale(all.max, all.sum, p.log, p.safe);
#pragma unroll 1
  for (int slab = slabs - 1; slab >= 0; --slab) {  // the newest first, which L2 still has
    const i64 col = column(slab);
    if (col < cols)
      terms.put(col, term_results<typename TERMS::result>(terms.terms(col, terms.read(col)), scale, p.log), first);
  }
}

}  // namespace baracuda
