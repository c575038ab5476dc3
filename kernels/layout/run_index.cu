// run_index  index[j] = how many ends are <= j: of runs that follow one another, the one that j lies in. No sums.
//
// A thread searches the ascending ends by bisection; its neighbours take the same way, mostly.
#include <baracuda/types.cuh>

namespace baracuda {

template <class I, class P> BARACUDA_D void run_index(const P& p) {
  const i64 j = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (j >= p.total) return;
  const I* ends = static_cast<const I*>(p.ends);
  i64 low = 0, high = p.count;
  while (low < high) {
    const i64 middle = (low + high) / 2;
    if (static_cast<i64>(ends[middle * p.step]) <= j) low = middle + 1;
    else high = middle;
  }
  static_cast<i64*>(p.index)[j * p.index_step] = low;
}

}  // namespace baracuda
