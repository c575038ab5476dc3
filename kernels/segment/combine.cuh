#pragma once
// combine    the tokens of every segment combined, column by column; the order is fixed by their number alone.
//
// segment_combine   The places of a segment are cut into chunks of 32 from its start. Slot k owns the chunks that start
//                   at places [32 k, 32 k + 32): at most one chunk of a segment from before, then the segments that start
//                   there. A segment of one chunk is finished at once; the chunks of others go to `partial`. Further
//                   blocks finish the segments without places.
// segment_merge     combines the chunks of a segment: eight stripes, chunk j to stripe j % 8, then the stripes in order.
//
// F says what is combined: `planes` numbers of A a column, identity(), add(state, value, token), combine(state, other),
// finish(p, state, n) with n the tokens that count. `factor`, `versus` and `masked`: the value is the product with z,
// is compared with h of its segment, or counts only where arg of its source is the token. `kept`: the planes themselves
// are the result, in the workspace.
#include <baracuda/wanted.cuh>

#include "segment/places.cuh"

namespace baracuda {

// schedules/segments.py has the sizes of blocks and slots.
constexpr int combine_groups = combine_threads / combine_least_lanes;
constexpr int combine_reach = 2 * slot_places;  // a slot's places, and as many of the chunk that runs past its end
constexpr int merge_stripes = merge_threads / warp_size;
constexpr int merge_columns = merge_block_columns / warp_size;  // of a lane
constexpr i64 no_source = -0x7fffffffffffffff - 1;

// The numbers of the call for elements T, integers modulo 2^n.
template <class T, class P> BARACUDA_D acc_t<T> number_of_none(const P& p) {
  if constexpr (is_integer<T>) return to_acc(cast<T>(p.empty_whole()));
  else return static_cast<acc_t<T>>(p.empty());
}
template <class T, class P> BARACUDA_D acc_t<T> number_at_first(const P& p) {
  if constexpr (is_integer<T>) return to_acc(cast<T>(p.initial_whole()));
  else return static_cast<acc_t<T>>(p.initial());
}

// What a segment of n tokens that count comes to; `empty` is asked for where there is none.
template <class F, class T, class A, class P> BARACUDA_D A segment_value(const P& p, A (&state)[F::planes], i64 n) {
  if (n == 0 && p.fills) return number_of_none<T>(p);
  if (p.begins) {
    A begun[F::planes];
    F::identity(begun);
    F::add(begun, number_at_first<T>(p), -1);
    F::combine(begun, state);
#pragma unroll
    for (int plane = 0; plane < F::planes; ++plane) state[plane] = begun[plane];
  }
  return F::finish(p, state, n);
}

// Operands are numbered 0 y, 1 x, 2 z, 3 g or arg, 4 h. A chunk of VEC > 1 columns is dense in each.
template <int VEC, class P> BARACUDA_D i64 column_at(const P& p, int operand, i64 column) {
  if (VEC > 1) return column;
  if (p.column_rank <= 1) return column * p.column_strides[operand][0];
  return offset<i64>(column, p.column_rank, p.column_shape, p.column_strides[operand]);
}

// The planes of neighbouring columns, `step` apart.
template <class F, class A, int VEC> BARACUDA_D void store_planes(A* to, i64 step, const A (&state)[VEC][F::planes]) {
#pragma unroll
  for (int plane = 0; plane < F::planes; ++plane) {
    Vec<A, VEC> x;
#pragma unroll
    for (int k = 0; k < VEC; ++k) x[k] = state[k][plane];
    store(to + plane * step, x);
  }
}

// Writes what neighbouring columns of a segment come to, of which n tokens count.
template <class F, class T, int VEC, class P>
BARACUDA_D void segment_finish(const P& p, i64 segment, i64 column, i64 y_column, acc_t<T> (&state)[VEC][F::planes],
                               i64 n) {
  using A = acc_t<T>;
  if constexpr (F::kept) {
    A* aux = static_cast<A*>(p.aux) + (segment * p.pitch + column);
    if (p.begins) {
#pragma unroll
      for (int k = 0; k < VEC; ++k) segment_value<F, T>(p, state[k], n);
    }
    store_planes<F>(aux, p.segments * p.pitch, state);
  } else {
    Vec<A, VEC> sum;
#pragma unroll
    for (int k = 0; k < VEC; ++k) sum[k] = segment_value<F, T>(p, state[k], n);
    store(static_cast<T*>(p.y) + (segment * p.y_row + y_column), from_acc<T>(sum));
    if constexpr (F::argued) {
      if (p.arg != nullptr) {
        Vec<i64, VEC> found;
#pragma unroll
        for (int k = 0; k < VEC; ++k) found[k] = F::argument(state[k]);
        store(static_cast<i64*>(p.arg) + (segment * p.arg_row + column_at<VEC>(p, 3, column)), found);
      }
    }
  }
}
// Writes how many tokens of a segment count; the thread of column 0 does, where there are no columns, too.
template <class F, class P> BARACUDA_D void segment_tally(const P& p, i64 segment, i64 column, i64 n) {
  if constexpr (F::counted) {
    if (p.count != nullptr && column == 0) static_cast<i64*>(p.count)[segment * p.count_step] = n;
  }
}

template <class F, class A, int VEC> BARACUDA_D void begin_states(A (&state)[VEC][F::planes]) {
#pragma unroll
  for (int k = 0; k < VEC; ++k) F::identity(state[k]);
}

// Finishes the segments without places.
template <class F, class T, int VEC, class P> BARACUDA_D void segment_fill(const P& p, i64 block, i32* bound) {
  using A = acc_t<T>;
  const i64 first = block * p.fill_rows;
  const int n = static_cast<int>(min<i64>(first + p.fill_rows, p.segments) - first);
  for (int i = threadIdx.x; i <= n; i += combine_threads) bound[i] = static_cast<const i32*>(p.starts)[first + i];
  __syncthreads();
  for (int row = threadIdx.x; row < n; row += combine_threads) {
    if (bound[row] >= bound[row + 1]) segment_tally<F>(p, first + row, 0, 0);
  }
  const i64 chunks = p.dim / VEC;
  for (i64 item = threadIdx.x; item < n * chunks; item += combine_threads) {
    u64 chunk;
    const int row = static_cast<int>(divmod(static_cast<u64>(item), static_cast<u64>(chunks), chunk));
    if (bound[row] < bound[row + 1]) continue;
    const i64 column = static_cast<i64>(chunk) * VEC;
    A state[VEC][F::planes];
    begin_states<F>(state);
    segment_finish<F, T, VEC>(p, first + row, column, column_at<VEC>(p, 0, column), state, 0);
  }
}

// The places [begin, end) of a slot's chunks. `carried`: the first one is a later chunk of segment `first`; `split`: the
// last one is the first of several chunks of segment `last`.
struct Slot {
  i64 begin, end;
  i32 first, last;
  bool carried, split;
};
template <class P> BARACUDA_D Slot slot_of(const P& p, i64 slot) {
  Slot s{0, 0, -1, -1, false, false};
  if (slot >= p.slots) return s;
  const i32* starts = static_cast<const i32*>(p.starts);
  const i64 low = slot * slot_places, high = min<i64>(low + slot_places, starts[p.segments]);
  s.last = static_cast<const i32*>(p.last)[slot];
  if (s.last < 0) return s;
  s.first = static_cast<const i32*>(p.first)[slot];
  const i64 start = s.first < 0 ? high : starts[s.first], stop = s.first < 0 ? starts[0] : starts[s.first + 1];
  const i64 next = start + round_up(low - start, static_cast<i64>(slot_places));
  s.begin = s.first < 0 ? stop : min(next, stop);
  if (s.begin < low || s.begin >= high) return {0, 0, -1, -1, false, false};
  s.carried = s.first >= 0 && start < low && next < stop;
  const i64 last_start = starts[s.last], last_stop = starts[s.last + 1];
  s.end = min((last_start < low ? next : last_start) + slot_places, last_stop);
  s.end = min(s.end, s.begin + combine_reach);
  s.split = last_start >= low && last_stop - last_start > slot_places;
  return s;
}

template <class F, class T, int VEC, class P> BARACUDA_D void segment_combine(const P& p) {
  using A = acc_t<T>;
  constexpr int loads = F::factor || F::versus || F::masked ? 3 : 8;  // tokens in flight
  __shared__ i64 source[combine_groups * combine_reach];
  __shared__ A weight[F::weighted ? combine_groups * combine_reach : 1];
  __shared__ i32 token_of[combine_groups * combine_reach];
  __shared__ i32 owner[combine_groups * (combine_reach + 1)];
  if (static_cast<int>(blockIdx.x) >= p.sum_blocks) {
    segment_fill<F, T, VEC>(p, static_cast<int>(blockIdx.x) - p.sum_blocks, owner);
    return;
  }
  // A group of `lanes` threads has a slot; `tiles` blocks share its columns.
  const int lanes = p.lanes, groups = combine_threads / lanes;
  const int group = static_cast<int>(threadIdx.x) / lanes, lane = static_cast<int>(threadIdx.x) % lanes;
  const int tile = static_cast<int>(blockIdx.x) % p.tiles;
  const i64 slot = static_cast<i64>(static_cast<int>(blockIdx.x) / p.tiles) * groups + group;
  const Slot s = slot_of(p, slot);
  const i32* starts = static_cast<const i32*>(p.starts);
  const int count = s.end > s.begin ? static_cast<int>(s.end - s.begin) : 0;
  const int from = group * combine_reach, row_of = group * (combine_reach + 1);  // the group's entries
  for (int i = lane; i < count; i += lanes) {
    const i64 place = s.begin + i, lowest = max(s.first, 0);
    const i64 row = lowest + first_of(s.last - lowest, [&](i64 k) { return starts[lowest + k + 1] > place; });
    const i64 token = p.order != nullptr ? static_cast<const i32*>(p.order)[place] : place;
    i64 at = token;
    if (p.src != nullptr) at = read_index(p.src, token * p.src_step, p.src_wide);
    const bool known = at >= 0 && at < p.rows && at != p.padding;
    if (!known && at != p.padding && p.status != nullptr) atomicOr(p.status, 1u);
    source[from + i] = known ? at : -1;
    token_of[from + i] = static_cast<i32>(token);
    owner[row_of + i] = static_cast<i32>(row);
    if constexpr (F::weighted) {
      A w = A(1);
      if (p.weight != nullptr) {
        const i64 at = token * p.weight_step;
        w = p.weight_wide ? static_cast<const A*>(p.weight)[at] : to_acc(static_cast<const T*>(p.weight)[at]);
      }
      if (p.shares != nullptr && known) {
        w /= static_cast<A>(max<i64>(static_cast<const i64*>(p.shares)[at * p.shares_step], 1));
      }
      weight[from + i] = w;
    }
  }
  if (lane == 0) {
    owner[row_of + count] = -1;
    if (tile == 0 && slot < p.slots) static_cast<i32*>(p.split)[slot] = s.split ? s.last : -1;
  }
  __syncthreads();

  const i64 column = (static_cast<i64>(tile) * lanes + lane) * VEC;
  const bool reads = column < p.dim;
  if (!reads && !(F::counted && column == 0)) return;
  const i64 y_column = column_at<VEC>(p, 0, column);
  const T* x = static_cast<const T*>(p.x) + column_at<VEC>(p, 1, column);
  const T* z = static_cast<const T*>(p.z) + column_at<VEC>(p, 2, column);
  const T* h = static_cast<const T*>(p.h) + column_at<VEC>(p, 4, column);
  const i64* arg = static_cast<const i64*>(p.arg) + column_at<VEC>(p, 3, column);
  A state[VEC][F::planes];
  begin_states<F>(state);
  i32 n = 0;
  for (int base = 0; base < count; base += loads) {
    Packed<T, VEC> v[loads], other[F::factor || F::versus ? loads : 1];
    Packed<i64, F::masked ? VEC : 2> mask[F::masked ? loads : 1];
#pragma unroll
    for (int u = 0; u < loads; ++u) {
      const int at = min(base + u, count - 1);
      const i64 token = source[from + at];
      const bool wanted = base + u < count && token >= 0 && reads;
      v[u].load_if(x + token * p.x_row, wanted);
      if constexpr (F::factor) other[u].load_if(z + token * p.z_row, wanted);
      if constexpr (F::versus) other[u].load_if(h + owner[row_of + at] * p.h_row, wanted);
      if constexpr (F::masked) mask[u].load_if(arg + token * p.arg_row, wanted);
    }
    // One copy of what follows, for the sake of the instruction cache: the values move up, token by token.
#pragma unroll 1
    for (int at = base; at < min(base + loads, count); ++at) {
      const int i = from + at;
      if (source[i] >= 0) {
        ++n;
        const auto a = to_acc(v[0].unpacked());
        const Vec<T, VEC> b = other[0].unpacked();
        const auto named = mask[0].unpacked();
#pragma unroll
        for (int k = 0; k < VEC; ++k) {
          A value = a[k];
          if constexpr (F::weighted) value *= weight[i];
          if constexpr (F::factor) value *= to_acc(b[k]);
          if constexpr (F::versus) value = A(F::same(value, to_acc(b[k])));
          if constexpr (F::masked) value = named[k] == token_of[i] ? value : A(0);
          F::add(state[k], value, token_of[i]);
        }
      }
#pragma unroll
      for (int u = 0; u + 1 < loads; ++u) {
        v[u] = v[u + 1];
        if constexpr (F::factor || F::versus) other[u] = other[u + 1];
        if constexpr (F::masked) mask[u] = mask[u + 1];
      }
      const i32 row = owner[row_of + at];
      if (row == owner[row_of + at + 1]) continue;
      const bool later = s.carried && row == s.first;
      if (later || (s.split && row == s.last)) {
        const i64 entry = 2 * slot + (later ? 0 : 1);
        A* out = static_cast<A*>(p.partial) + (entry * F::planes * p.pitch + column);
        if (reads) store_planes<F>(out, p.pitch, state);
        if (column == 0) static_cast<i32*>(p.found)[entry] = n;
      } else {
        if (reads) segment_finish<F, T, VEC>(p, row, column, y_column, state, n);
        segment_tally<F>(p, row, column, n);
      }
      begin_states<F>(state);
      n = 0;
    }
  }
}

// ---- segments of several chunks -------------------------------------------------------------------------------------

template <class F, class T, class P> BARACUDA_D void segment_merge(const P& p) {
  using A = acc_t<T>;
  constexpr int N = merge_columns;
  __shared__ A part[merge_stripes][F::planes][N][warp_size];
  __shared__ i64 part_found[merge_stripes];
  __shared__ i32 row_of[merge_slots];
  const int lane = lane_id(), stripe = threadIdx.x / warp_size;
  const i64 tiles = max<i64>(div_up(p.dim, static_cast<i64>(warp_size * N)), 1);
  const i64 first = blockIdx.x / tiles * merge_slots;
  const i64 column = (blockIdx.x % tiles * warp_size + lane) * N;
  if (threadIdx.x < merge_slots) {
    const i64 slot = first + threadIdx.x;
    row_of[threadIdx.x] = slot < p.slots ? static_cast<const i32*>(p.split)[slot] : -1;
  }
  __syncthreads();
  for (int i = 0; i < merge_slots; ++i) {
    const i64 row = row_of[i];
    if (row < 0) continue;
    const i32* starts = static_cast<const i32*>(p.starts) + row;
    const i64 chunks = min<i64>(div_up(starts[1] - starts[0], slot_places), p.slots - first - i);
    A state[N][F::planes];
    begin_states<F>(state);
    i64 n = 0;
    for (i64 chunk = stripe; chunk < chunks; chunk += merge_stripes) {
      // Chunk 0 is the second entry of its slot, a later chunk the first entry of the slot it starts in.
      const i64 entry = 2 * (first + i + chunk) + (chunk == 0);
      n += static_cast<const i32*>(p.found)[entry];
      if (column >= p.dim) continue;
      const A* from = static_cast<const A*>(p.partial) + (entry * F::planes * p.pitch + column);
      Vec<A, N> x[F::planes];
#pragma unroll
      for (int plane = 0; plane < F::planes; ++plane) x[plane] = load<N>(from + plane * p.pitch);
#pragma unroll
      for (int k = 0; k < N; ++k) {
        A other[F::planes];
#pragma unroll
        for (int plane = 0; plane < F::planes; ++plane) other[plane] = x[plane][k];
        F::combine(state[k], other);
      }
    }
#pragma unroll
    for (int plane = 0; plane < F::planes; ++plane) {
#pragma unroll
      for (int k = 0; k < N; ++k) part[stripe][plane][k][lane] = state[k][plane];
    }
    if (lane == 0) part_found[stripe] = n;
    __syncthreads();
    if (stripe == 0) {
#pragma unroll 1
      for (int s = 1; s < merge_stripes; ++s) {
#pragma unroll
        for (int k = 0; k < N; ++k) {
          A other[F::planes];
#pragma unroll
          for (int plane = 0; plane < F::planes; ++plane) other[plane] = part[s][plane][k][lane];
          F::combine(state[k], other);
        }
        n += part_found[s];
      }
#pragma unroll
      for (int plane = 0; plane < F::planes; ++plane) {
#pragma unroll
        for (int k = 0; k < N; ++k) part[0][plane][k][lane] = state[k][plane];
      }
#pragma unroll 1  // what a segment comes to may take a division, of which one is enough
      for (int k = 0; k < N; ++k) {
        A one[1][F::planes];
#pragma unroll
        for (int plane = 0; plane < F::planes; ++plane) one[0][plane] = part[0][plane][k][lane];
        if (column + k < p.dim) {
          segment_finish<F, T, 1>(p, row, column + k, column_at<1>(p, 0, column + k), one, n);
        }
      }
      segment_tally<F>(p, row, column, n);
    }
    __syncthreads();
  }
}

}  // namespace baracuda
