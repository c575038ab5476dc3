// scatter    y = x (or 0), then y[…, index[…, l, …], …] = f(itself, src[…, l, …]) along one axis or several, l in order
//
// Every element of y is made by one thread, from x and the tokens l that name it, one after the other. Of a line of up to
// 64 tokens it looks at all indices. The tokens of longer lines are sorted by position, stably, before: by counts (tally,
// place: segments.cuh), or by a radix sort of keys (keys, bounds); and it takes those that the sort put together, four
// loads in flight. scatter_words lets the last token win, whose number `latest` has left, and moves words.
// scatter_source is src's gradient: every element of it is made by one thread, from the element of dy that its index
// names. scatter_atomic adds in any order. Lines of single elements that a block holds: scatter_lines.cu.
//
// Virtual operands 3 and 4 of the map give an element's line and its position along the scattered axes, row-major where
// they are several. The order of a sum is that of the tokens alone.
#include <baracuda/segments.cuh>
#include <baracuda/turns.cuh>
#include <baracuda/wanted.cuh>
#include "indexing/scatter_tokens.cuh"

namespace baracuda {

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
template <class P> BARACUDA_D void scatter_tally(const P& p) { scatter_sort<false>(p); }
template <class P> BARACUDA_D void scatter_place(const P& p) { scatter_sort<true>(p); }

// Of a radix sort: the position of every token, extent for none. A thread a token of a line.
template <class P> BARACUDA_D void scatter_keys(const P& p) {
  u64 token;
  const i64 i = thread_index();
  const i64 line = static_cast<i64>(divmod(static_cast<u64>(i), static_cast<u64>(p.tokens), token));
  if (i >= p.marks) return;
  const i64 first = line_index(p, line), row = first == no_line ? -1 : scatter_row(p, first, static_cast<i64>(token));
  static_cast<i32*>(p.keys)[i] = static_cast<i32>(row < 0 ? p.extent : row);
}
// Of the sorted positions: where those of each begin. A thread a position of a line, and one behind the last.
template <class P> BARACUDA_D void scatter_bounds(const P& p) {
  u64 position;
  const i64 line = static_cast<i64>(divmod(static_cast<u64>(thread_index()), static_cast<u64>(p.extent + 1), position));
  if (line * p.tokens >= p.marks) return;
  const i32* keys = static_cast<const i32*>(p.sorted_keys) + line * p.tokens;
  i64 low = 0, high = p.tokens;
  while (low < high) {
    const i64 middle = (low + high) / 2;
    if (keys[middle] < static_cast<i64>(position)) low = middle + 1;
    else high = middle;
  }
  static_cast<i32*>(p.starts)[line * p.starts_pitch + static_cast<i64>(position)] = static_cast<i32>(low);
}

// ---- the last token -------------------------------------------------------------------------------------------------

// latest[line][position] = 1 + the last token that names it, 0 for none: the largest number, whoever comes first.
template <class P> BARACUDA_D void scatter_clear(const P& p) {
  const i64 i = thread_index() * 4;
  if (i < p.marks) store(static_cast<i32*>(p.latest) + i, Vec<i32, 4>{});
}
template <class P> BARACUDA_D void scatter_latest(const P& p) {
  u64 token;
  const u64 i = static_cast<u64>(thread_index());
  const i64 line = static_cast<i64>(divmod(i, static_cast<u64>(p.tokens), token));
  const i64 first = line * p.starts_pitch < p.marks ? line_index(p, line) : no_line;
  const i64 row = first == no_line ? -1 : scatter_row(p, first, static_cast<i64>(token));
  const i64 at = row < 0 ? -1 : line * p.starts_pitch + row;
  // Of a run of tokens with one position the last one alone adds to the traffic.
  const i64 after = __shfl_down_sync(full_warp, at, 1);
  if (at < 0 || (lane_id() < warp_size - 1 && after == at)) return;
  atomicMax(static_cast<i32*>(p.latest) + at, static_cast<i32>(token) + 1);
}

// ---- the elements ---------------------------------------------------------------------------------------------------

// VEC neighbours along the last axis, which share line and position.
template <class F, class T, int VEC, class P> BARACUDA_D void scatter_elements(const P& p) {
  constexpr int loads = 4;
  const i64 c[1] = {static_cast<i64>(blockIdx.x) * map_threads + threadIdx.x};
  if (c[0] >= p.chunks) return;
  i64 place[1][5];
  map_offsets(p, c, place);
  const i64(&at)[5] = place[0];
  const T* src = static_cast<const T*>(p.src) + at[2];
  auto all = combine_with<F, VEC>(p.x == nullptr ? nullptr : static_cast<const T*>(p.x) + at[1], p.fresh);
  if (p.sorted) {
    const i32* starts = static_cast<const i32*>(p.starts) + (at[3] * p.starts_pitch + at[4]);
    const i32* order = static_cast<const i32*>(p.order) + at[3] * p.tokens;
    const i32 begin = starts[0], end = starts[1];
    for (i32 i = begin; i < end; i += loads) {
      Packed<T, VEC> x[loads];
      i32 token[loads];
#pragma unroll
      for (int u = 0; u < loads; ++u) token[u] = order[min(i + u, end - 1)];
#pragma unroll
      for (int u = 0; u < loads; ++u) x[u].load_if(src + scatter_token(p, 1, token[u]), i + u < end);
#pragma unroll
      for (int u = 0; u < loads; ++u) {
        if (i + u < end) all.add(x[u].unpacked());
      }
    }
  } else {
    const i64 first = line_index(p, at[3]);
    for (i64 token = 0; token < (first == no_line ? 0 : p.tokens); ++token) {
      if (scatter_row(p, first, token) == at[4]) all.add(load<VEC>(src + scatter_token(p, 1, token)));
    }
  }
  store(static_cast<T*>(p.y) + at[0], all.finish());
}

// The last token of a line that names a position, or -1.
template <class P> BARACUDA_D i64 last_token(const P& p, i64 line, i64 position) {
  if (p.sorted) return static_cast<const i32*>(p.latest)[line * p.starts_pitch + position] - 1;
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
