// searchsorted  index[i] = how many elements of a sorted row are before value i. Schedule map; nothing is summed.
//               Of one row that many values are looked for in, blocks hold every `gap`-th element, or all, in shared
//               memory, and halve those first; a thread has four values on the way (searchsorted_held).
// member        y[i] = whether value i is one of a sorted row.
#include "sort/sorted_row.cuh"
#include <baracuda/map.cuh>

namespace baracuda {

// Operands of the map: index, values, the row's first element in sorted_sequence, that in sorter.
template <class U, class P> BARACUDA_D void searchsorted(const P& p) {
  const i64 c[1] = {thread_index()};
  if (c[0] >= p.chunks) return;
  i64 place[1][4];
  map_offsets(p, c, place);
  const i64(&at)[4] = place[0];
  const i64 size = p.sorter_wide ? 8 : 4;
  const void* sorter = p.sorter == nullptr ? nullptr : static_cast<const char*>(p.sorter) + at[3] * size;
  const SortedRow<U> row{static_cast<const U*>(p.sorted_sequence) + at[2],
                         sorter,
                         p.extent,
                         p.step,
                         p.sorter_step,
                         p.sorter_wide != 0,
                         KeyOrder<U>(p.order)};
  const U value = row.order.rank(row.order.code(static_cast<const U*>(p.values)[at[1]]));
  const i64 found = row.before(value, p.right);
  if (p.index_wide) static_cast<i64*>(p.index)[at[0]] = found;
  else static_cast<i32*>(p.index)[at[0]] = static_cast<i32>(found);
}

// The same operands, of which the row is one for all values. held: how many elements are in shared memory, the last ones
// of groups of `gap`; top: the highest power of two up to that.
template <class U, class P> BARACUDA_D void searchsorted_held(const P& p) {
  constexpr int values = 4;
  BARACUDA_DYNAMIC_SMEM(U, samples);
  const SortedRow<U> row{static_cast<const U*>(p.sorted_sequence),
                         p.sorter,
                         p.extent,
                         p.step,
                         p.sorter_step,
                         p.sorter_wide != 0,
                         KeyOrder<U>(p.order)};
  // Filled up to a power of two, so that every step of the search is the same.
  for (int k = static_cast<int>(threadIdx.x); k < 2 * p.top; k += map_threads) {
    samples[k] = static_cast<U>(~U(0));
    if (k < p.held) samples[k] = row.rank(min((k + 1) * p.gap, p.extent) - 1);
  }
  __syncthreads();
  const bool right = p.right;
  const i64 each = static_cast<i64>(gridDim.x) * (map_threads * values);
  for (i64 first = static_cast<i64>(blockIdx.x) * (map_threads * values) + threadIdx.x; first < p.chunks;
       first += each) {
    i64 c[values], at[values][4];
    U value[values];
    int group[values];
#pragma unroll
    for (int u = 0; u < values; ++u) c[u] = min(first + u * map_threads, p.chunks - 1);
    map_offsets(p, c, at);
#pragma unroll
    for (int u = 0; u < values; ++u) value[u] = static_cast<const U*>(p.values)[at[u][1]];
#pragma unroll
    for (int u = 0; u < values; ++u) value[u] = row.order.rank(row.order.code(value[u])), group[u] = 0;
#pragma unroll 1
    for (int step = p.top; step > 0; step /= 2) {
#pragma unroll
      for (int u = 0; u < values; ++u) {
        const U sample = samples[group[u] + step - 1];
        if (sample < value[u] || (right && sample == value[u])) group[u] += step;
      }
    }
    i64 begin[values], left[values], longest = 0;
#pragma unroll
    for (int u = 0; u < values; ++u) {
      const i64 g = min(group[u], p.held);
      begin[u] = min(g * p.gap, p.extent);
      left[u] = g < p.held ? min(p.gap, p.extent - begin[u]) - 1 : 0;  // the last one is not before the value
      longest = max(longest, left[u]);
    }
#pragma unroll 1
    for (; longest > 0; longest /= 2) {
      U middle[values];
#pragma unroll
      for (int u = 0; u < values; ++u) middle[u] = row.rank(min(begin[u] + left[u] / 2, p.extent - 1));
#pragma unroll
      for (int u = 0; u < values; ++u) {
        const i64 half = left[u] / 2;
        const bool further = left[u] > 0 && (middle[u] < value[u] || (right && middle[u] == value[u]));
        begin[u] = further ? begin[u] + half + 1 : begin[u];
        left[u] = further ? left[u] - half - 1 : half;
      }
    }
#pragma unroll
    for (int u = 0; u < values; ++u) {
      if (first + u * map_threads >= p.chunks) break;
      if (p.index_wide) static_cast<i64*>(p.index)[at[u][0]] = begin[u];
      else static_cast<i32*>(p.index)[at[u][0]] = static_cast<i32>(begin[u]);
    }
  }
}

// Operands of the map: y, x.
template <class U, class P> BARACUDA_D void member(const P& p) {
  const i64 c[1] = {thread_index()};
  if (c[0] >= p.chunks) return;
  i64 at[1][2];
  map_offsets(p, c, at);
  const SortedRow<U> row{static_cast<const U*>(p.elements), nullptr, p.extent, p.step, 0, false, KeyOrder<U>(p.order)};
  const U value = row.order.rank(row.order.code(static_cast<const U*>(p.x)[at[0][1]]));
  const i64 found = row.before(value, false);
  bool is = found < p.extent && row.rank(found) == value;
  if (p.floats && value == static_cast<U>(~U(0))) is = false;  // NaN
  static_cast<bool*>(p.y)[at[0][0]] = is != (p.invert != 0);
}

}  // namespace baracuda
