#pragma once
// sorted_row  a row that is sorted as `sort` does, looked through by halves.
#include <baracuda/radix_sort.cuh>

namespace baracuda {

// The elements of a row of `count` that are below r or, if `right`, not above it: of a sorted row the first ones.
template <class U> struct SortedRow {
  const U* keys;
  const void* sorter;  // null, or where each element of the sorted row is
  i64 count, step, sorter_step;
  bool sorter_wide;
  KeyOrder<U> order;

  BARACUDA_D U rank(i64 at) const {
    if (sorter != nullptr) {
      const i64 to = at * sorter_step;
      at = sorter_wide ? static_cast<const i64*>(sorter)[to] : static_cast<const i32*>(sorter)[to];
      at = max(i64(0), min(at, count - 1));
    }
    return order.rank(order.code(keys[at * step]));
  }
  BARACUDA_D i64 before(U r, bool right) const {
    i64 first = 0;
    for (i64 left = count; left > 0;) {
      const i64 half = left / 2;
      const U mid = rank(first + half);
      const bool further = mid < r || (right && mid == r);
      first = further ? first + half + 1 : first;
      left = further ? left - half - 1 : half;
    }
    return first;
  }
};

template <class U> BARACUDA_D i64 numbers_of(const SortedRow<U>& row) {  // elements before the first NaN
  return row.before(static_cast<U>(~U(0)), false);
}
template <class U, class P> BARACUDA_D SortedRow<U> row_at(const P& p, const void* x, i64 at) {
  return {static_cast<const U*>(x) + at, nullptr, p.extent, p.step, 0, false, KeyOrder<U>(p.order)};
}

}  // namespace baracuda
