// scatter    y = x (or 0), then y[…, index[…, l, …], …] = f(itself, src[…, l, …]) along one axis, l in order; no atomics
//
// Every element of y is made by one thread, from x and the tokens l that its index names, one after the other. Of a line
// of up to 64 tokens it looks at all indices; longer ones are sorted by index, stably, before (count, place:
// segments.cuh), and it takes those that the sort put together, four loads in flight. scatter_source is src's gradient:
// every element of it is made by one thread, from the element of dy that its index names.
//
// A *line* is what shares no index with others: the coordinates of the axes along which the index differs, but the
// scattered one. Virtual operands 3 and 4 of the map give an element's line and its position on the scattered axis.
// The order of a sum is that of the tokens alone.
#include <baracuda/map.cuh>
#include <baracuda/math.cuh>
#include <baracuda/segments.cuh>

namespace baracuda {

// What a token does to the element it names. `last`: only the last one does anything, else all, in order; `clears`: what
// it is does not matter. Gradient: the same for the gradient of x.
// `counts`: its tokens are counted, as the first may stand for what was there, or the result is divided.
struct ScatterClear {
  static constexpr bool last = true, clears = true, counts = false;
};
struct ScatterNothing {  // of lines without tokens
  static constexpr bool last = false, clears = true, counts = false;
};
struct ScatterSet {
  using Gradient = ScatterClear;
  static constexpr bool last = true, clears = false, counts = false;
  template <class A> static BARACUDA_D A apply(A, A b) { return b; }
};
struct ScatterEvery {
  static constexpr bool last = false, clears = false, counts = true;
  template <class A> static BARACUDA_D A finish(A a, i64) { return a; }
};
// Signed overflow is not defined, so integers add and multiply as unsigned ones.
template <class A> using wrapping = conditional<is_same<A, i64>, u64, A>;
struct ScatterAdd : ScatterEvery {
  using Gradient = ScatterNothing;
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
  const i64 row = p.index_wide ? static_cast<const i64*>(p.index)[at] : static_cast<const i32*>(p.index)[at];
  const bool known = row >= 0 && row < p.extent;
  if (!known && p.status != nullptr) atomicOr(p.status, 1u);
  return known ? row : -1;
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

// VEC neighbours along the last axis, which share line and position.
template <class F, class T, int VEC, bool SORTED, class P> BARACUDA_D void scatter_elements(const P& p) {
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
    const bool first = F::counts && p.fresh && found == 0;
    if constexpr (F::counts) ++found;
#pragma unroll
    for (int k = 0; k < VEC; ++k) {
      if constexpr (F::clears) sum[k] = A(0);
      else sum[k] = first ? v[k] : F::apply(sum[k], v[k]);
    }
  };
  if constexpr (SORTED) {
    const i32* starts = static_cast<const i32*>(p.starts) + (at[3] * p.starts_pitch + at[4]);
    const i32* order = static_cast<const i32*>(p.order) + at[3] * p.tokens;
    const i32 begin = starts[0], end = starts[1];
    for (i32 i = F::last ? max(begin, end - 1) : begin; i < end; i += loads) {
      Vec<T, VEC> x[loads];
#pragma unroll
      for (int u = 0; u < loads; ++u) {
        if (!F::clears && i + u < end) x[u] = load<VEC>(src + scatter_token(p, 1, order[i + u]));
      }
#pragma unroll
      for (int u = 0; u < loads; ++u) {
        if (i + u < end) add(x[u]);
      }
    }
  } else {
    const i64 first = line_index(p, at[3]);
    for (i64 token = 0; token < (first == no_line ? 0 : p.tokens); ++token) {
      if (scatter_row(p, first, token) != at[4]) continue;
      if constexpr (F::clears) add({});
      else add(load<VEC>(src + scatter_token(p, 1, token)));
    }
  }
  if constexpr (F::counts) {
    const i64 of = found + !p.fresh;
#pragma unroll
    for (int k = 0; k < VEC; ++k) sum[k] = found == 0 ? sum[k] : F::finish(sum[k], of);
  }
  store(static_cast<T*>(p.y) + at[0], from_acc<T>(sum));
}

// dsrc = dy at the element that the token names, where the token counts, else 0. VEC neighbours along the last axis share
// line and token. Operands of the map: dsrc, dy without the scattered axis, index, line, token.
template <class F, class T, int VEC, bool SORTED, class P> BARACUDA_D void scatter_source(const P& p) {
  const i64 c[1] = {static_cast<i64>(blockIdx.x) * map_threads + threadIdx.x};
  if (c[0] >= p.chunks) return;
  i64 place[1][5];
  map_offsets(p, c, place);
  const i64(&at)[5] = place[0];
  const i64 row = scatter_row(p, at[2], i64(0));
  bool counts = row >= 0;
  if constexpr (F::last) {
    if constexpr (SORTED) {
      const i32* starts = static_cast<const i32*>(p.starts) + (at[3] * p.starts_pitch + row);
      if (counts) counts = static_cast<const i32*>(p.order)[at[3] * p.tokens + starts[1] - 1] == at[4];
    } else {
      const i64 first = line_index(p, at[3]);
      for (i64 later = at[4] + 1; counts && later < p.tokens; ++later) counts = scatter_row(p, first, later) != row;
    }
  }
  Vec<T, VEC> x{};
  if (counts) x = load<VEC>(static_cast<const T*>(p.x) + (at[1] + row * p.step));
  store(static_cast<T*>(p.y) + at[0], x);
}

}  // namespace baracuda
