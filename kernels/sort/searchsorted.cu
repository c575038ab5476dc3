// searchsorted  index[i] = how many elements of a sorted row are before value i. Schedule map; nothing is summed.
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
