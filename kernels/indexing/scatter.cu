// scatter    y = x (or 0), then y[…, index[…, l, …], …] = f(itself, src[…, l, …]) along one axis or several, l in order
//
// Every element of y is made by one thread, from x and the tokens l that name it, one after the other. Of a line of up to
// 64 tokens it looks at all indices; longer ones are sorted by position, stably, before (count, place: segments.cuh), and
// it takes those that the sort put together, four loads in flight. scatter_words lets the last token win, and moves words.
// scatter_source is src's gradient: every element of it is made by one thread, from the element of dy that its index
// names. scatter_atomic adds in any order.
//
// A *line* is what shares no index with others: the coordinates of the axes along which the index differs, but the
// scattered ones. Virtual operands 3 and 4 of the map give an element's line and its position along the scattered axes,
// row-major where they are several. The order of a sum is that of the tokens alone.
#include <baracuda/complex.cuh>
#include <baracuda/map.cuh>
#include <baracuda/math.cuh>
#include <baracuda/positions.cuh>
#include <baracuda/segments.cuh>
#include <baracuda/turns.cuh>

namespace baracuda {

// What tokens make of the element they name: `apply` with each, in order, then `finish` by how many they were.
struct ScatterEvery {
  template <class A> static BARACUDA_D A finish(A a, i64) { return a; }
};
// Signed overflow is not defined, so integers add and multiply as unsigned ones.
template <class A> using wrapping = conditional<is_same<A, i64>, u64, A>;
struct ScatterAdd : ScatterEvery {
  template <class A> static BARACUDA_D A apply(A a, A b) {
    return static_cast<A>(static_cast<wrapping<A>>(a) + static_cast<wrapping<A>>(b));
  }
};
struct ScatterMean : ScatterAdd {  // integers are divided down, as in PyTorch
  template <class A> static BARACUDA_D A finish(A a, i64 count) {
    const A n = static_cast<A>(count);
    if constexpr (is_same<A, i64>) return a / n - (a % n != 0 && a < 0);
    else return a / n;
  }
};
struct ScatterProd : ScatterEvery {
  template <class A> static BARACUDA_D A apply(A a, A b) {
    return static_cast<A>(static_cast<wrapping<A>>(a) * static_cast<wrapping<A>>(b));
  }
};
struct ScatterAmax : ScatterEvery {  // NaN is the largest and the smallest
  template <class A> static BARACUDA_D A apply(A a, A b) { return math::maximum(a, b); }
};
struct ScatterAmin : ScatterEvery {
  template <class A> static BARACUDA_D A apply(A a, A b) { return math::minimum(a, b); }
};

// Strides, and so offsets, may be negative; none is that far below 0.
constexpr i64 no_line = -0x7fffffffffffffff - 1;

// Offset of the first index of a line, or `no_line` for one that the index does not reach.
template <class P> BARACUDA_D i64 line_index(const P& p, i64 line) {
  u64 rest = static_cast<u64>(line);
  i64 offset = 0;
  bool reached = true;
#pragma unroll 1
  for (int axis = p.line_rank - 1; axis >= 0; --axis) {
    u64 c = rest;
    if (axis > 0) rest = divmod(rest, static_cast<u64>(p.line_shape[axis]), c);
    reached = reached && static_cast<i64>(c) < p.line_bound[axis];
    offset += static_cast<i64>(c) * p.line_strides[axis];
  }
  return reached ? offset : no_line;
}
template <class P> BARACUDA_D i64 scatter_token(const P& p, int n, i64 token) {
  if (p.token_rank <= 1) return token * p.token_strides[n][0];
  return offset<i64>(token, p.token_rank, p.token_shape, p.token_strides[n]);
}
// The position that a token of a line names, or -1 for none.
template <class P> BARACUDA_D i64 scatter_row(const P& p, i64 first, i64 token) {
  const i64 at = first + scatter_token(p, 0, token);
  const i64 index = read_index(p.index, p.index_wide, at), row = position_of(index, p.extent);
  report_index(p.status, index, row);
  return row;
}

// ---- the sort -------------------------------------------------------------------------------------------------------

template <class P> BARACUDA_D SegmentSort line_sort(const P& p, i64 line) {
  const i64 each = static_cast<i64>(p.parts) * p.ranges;
  return {p.tokens,
          p.extent,
          p.ranges,
          p.parts,
          p.range_pitch,
          static_cast<i32*>(p.counts) + line * each * p.range_pitch,
          static_cast<i32*>(p.totals) + line * each,
          static_cast<i32*>(p.starts) + line * p.starts_pitch,
          static_cast<i32*>(p.order) + line * p.tokens,
          nullptr};
}
template <bool PLACE, class P> BARACUDA_D void scatter_sort(const P& p) {
  const int each = p.parts * p.ranges;
  const i64 line = static_cast<int>(blockIdx.x) / each, first = line_index(p, line);
  const auto row_of = [&](i64 token) { return first == no_line ? i64(-1) : scatter_row(p, first, token); };
  const int block = static_cast<int>(blockIdx.x) % each;
  if constexpr (PLACE) segment_place(line_sort(p, line), block, row_of);
  else segment_count(line_sort(p, line), block, row_of);
}
template <class P> BARACUDA_D void scatter_count(const P& p) { scatter_sort<false>(p); }
template <class P> BARACUDA_D void scatter_place(const P& p) { scatter_sort<true>(p); }

// ---- the elements ---------------------------------------------------------------------------------------------------

// VEC neighbours along the last axis, which share line and position. Of the first token of an element nothing is left of
// what was there where `fresh` says so.
template <class F, class T, int VEC, class P> BARACUDA_D void scatter_elements(const P& p) {
  using A = acc_t<T>;
  constexpr int loads = 4;
  const i64 c[1] = {static_cast<i64>(blockIdx.x) * map_threads + threadIdx.x};
  if (c[0] >= p.chunks) return;
  i64 place[1][5];
  map_offsets(p, c, place);
  const i64(&at)[5] = place[0];
  const T* src = static_cast<const T*>(p.src) + at[2];
  Vec<A, VEC> sum;
#pragma unroll
  for (int k = 0; k < VEC; ++k) sum[k] = A(0);
  if (p.x != nullptr) sum = to_acc(load<VEC>(static_cast<const T*>(p.x) + at[1]));
  i64 found = 0;
  const auto add = [&](const Vec<T, VEC>& x) {
    const auto v = to_acc(x);
    const bool first = p.fresh && found == 0;
    ++found;
#pragma unroll
    for (int k = 0; k < VEC; ++k) sum[k] = first ? v[k] : F::apply(sum[k], v[k]);
  };
  if (p.sorted) {
    const i32* starts = static_cast<const i32*>(p.starts) + (at[3] * p.starts_pitch + at[4]);
    const i32* order = static_cast<const i32*>(p.order) + at[3] * p.tokens;
    const i32 begin = starts[0], end = starts[1];
    for (i32 i = begin; i < end; i += loads) {
      Vec<T, VEC> x[loads];
#pragma unroll
      for (int u = 0; u < loads; ++u) {
        if (i + u < end) x[u] = load<VEC>(src + scatter_token(p, 1, order[i + u]));
      }
#pragma unroll
      for (int u = 0; u < loads; ++u) {
        if (i + u < end) add(x[u]);
      }
    }
  } else {
    const i64 first = line_index(p, at[3]);
    for (i64 token = 0; token < (first == no_line ? 0 : p.tokens); ++token) {
      if (scatter_row(p, first, token) == at[4]) add(load<VEC>(src + scatter_token(p, 1, token)));
    }
  }
  const i64 of = found + !p.fresh;
#pragma unroll
  for (int k = 0; k < VEC; ++k) sum[k] = found == 0 ? sum[k] : F::finish(sum[k], of);
  store(static_cast<T*>(p.y) + at[0], from_acc<T>(sum));
}

// The last token of a line that names a position, or -1.
template <class P> BARACUDA_D i64 last_token(const P& p, i64 line, i64 position) {
  if (p.sorted) {
    const i32* starts = static_cast<const i32*>(p.starts) + (line * p.starts_pitch + position);
    const i32 begin = starts[0], end = starts[1];
    return begin < end ? static_cast<const i32*>(p.order)[line * p.tokens + end - 1] : -1;
  }
  const i64 first = line_index(p, line);
  i64 token = first == no_line ? -1 : p.tokens - 1;
  while (token >= 0 && scatter_row(p, first, token) != position) --token;
  return token;
}

// y = src at the last token of the element (0 where there is no src), or x (0 where there is no x); words of BYTES.
template <int BYTES, class P> BARACUDA_D void scatter_words(const P& p) {
  using W = Word<BYTES>;
  const i64 c[1] = {static_cast<i64>(blockIdx.x) * map_threads + threadIdx.x};
  if (c[0] >= p.chunks) return;
  i64 place[1][5];
  map_offsets(p, c, place);
  const i64(&at)[5] = place[0];
  const i64 token = last_token(p, at[3], at[4]);
  W word{};
  if (token < 0) {
    if (p.x != nullptr) word = static_cast<const W*>(p.x)[at[1]];
  } else if (p.src != nullptr) {
    word = static_cast<const W*>(p.src)[at[2] + scatter_token(p, 1, token)];
  }
  static_cast<W*>(p.y)[at[0]] = word;
}

// ---- the tokens -----------------------------------------------------------------------------------------------------

// Where a position lies along the scattered axes of the array that the tokens name elements of.
template <class P> BARACUDA_D i64 scatter_offset(const P& p, i64 row) {
  if (p.row_rank <= 1) return row * p.row_strides[0];
  return offset<i64>(row, p.row_rank, p.row_shape, p.row_strides);
}

// dsrc = dy at the element that the token names, else 0; `last`: only of the token that wrote it. Words of BYTES.
// Operands of the map: dsrc, dy without the scattered axes, index, line, token.
template <int BYTES, class P> BARACUDA_D void scatter_source(const P& p) {
  using W = Word<BYTES>;
  const i64 c[1] = {static_cast<i64>(blockIdx.x) * map_threads + threadIdx.x};
  if (c[0] >= p.chunks) return;
  i64 place[1][5];
  map_offsets(p, c, place);
  const i64(&at)[5] = place[0];
  const i64 row = scatter_row(p, at[2], i64(0));
  W word{};
  if (row >= 0 && (!p.last || last_token(p, at[3], row) == at[4])) {
    word = static_cast<const W*>(p.x)[at[1] + scatter_offset(p, row)];
  }
  static_cast<W*>(p.y)[at[0]] = word;
}

// y += src at the element that each token names, by atomics: in any order. Operands of the map as above, src in the
// place of dsrc and y in that of dy.
template <class T, int VEC, class P> BARACUDA_D void scatter_atomic(const P& p) {
  const i64 c[1] = {static_cast<i64>(blockIdx.x) * map_threads + threadIdx.x};
  if (c[0] >= p.chunks) return;
  i64 place[1][5];
  map_offsets(p, c, place);
  const i64(&at)[5] = place[0];
  const i64 row = scatter_row(p, at[2], i64(0));
  if (row < 0) return;
  const auto x = load<VEC>(static_cast<const T*>(p.src) + at[0]);
  T* const y = static_cast<T*>(p.y) + (at[1] + scatter_offset(p, row));
  if constexpr (VEC == 4) {
    add_quad_any_order(y, x.v);
  } else {
#pragma unroll
    for (int k = 0; k < VEC; ++k) atomicAdd(y + k, x[k]);
  }
}

}  // namespace baracuda
