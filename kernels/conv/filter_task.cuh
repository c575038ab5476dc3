#pragma once
// filter_task what a block computes of the gradient of a filter.
#include <baracuda/index.cuh>

namespace baracuda {

// What a block computes: a split of a tile of outputs n0 … and columns k0 … of a group.
struct FilterTask {
  i64 split, group, n0, k0, first, last;
  template <class P> BARACUDA_D FilterTask(const P& p, i64 rows, i64 columns) {
    u64 rest = blockIdx.x, place;
    rest = divmod(rest, static_cast<u64>(div_up(p.cols, rows)), place), n0 = static_cast<i64>(place) * rows;
    rest = divmod(rest, static_cast<u64>(div_up(p.taps * p.channels, columns)), place);
    k0 = static_cast<i64>(place) * columns;
    split = static_cast<i64>(divmod(rest, static_cast<u64>(p.groups), place)), group = static_cast<i64>(place);
    first = split * p.split_rows, last = min<i64>(p.rows, first + p.split_rows);
  }
  template <class A, class P> BARACUDA_D A* line(const P& p, i64 n) const {
    return static_cast<A*>(p.parts) + ((split * p.groups + group) * p.cols + n) * p.taps * p.channels;
  }
};

}  // namespace baracuda
