#pragma once
// multi_tensor  lists of tensors in one launch: which tensor a block works on.
//
// P has the fields of `schedules/multi_tensor.py`: first[count], the first block of each tensor, ascending from 0.
#include <baracuda/types.cuh>

namespace baracuda {

// The last tensor whose first block is <= block: empty tensors share their successor's first block and are skipped.
template <class P> BARACUDA_D int find_tensor(const P& p, int block) {
  int low = 0, high = p.count - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (p.first[middle] <= block) low = middle;
    else high = middle - 1;
  }
  return low;
}

template <class... Pointers> BARACUDA_D bool all_aligned(Pointers... pointers) {
  return ((reinterpret_cast<u64>(pointers) | ...) & 15) == 0;
}

}  // namespace baracuda
