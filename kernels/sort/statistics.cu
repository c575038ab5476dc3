// statistics  of sorted rows. place_of: where the median stands; mode_of: where the longest run of equal elements ends.
//             Schedule map, but for mode_of, which has a block for every row and merges counts by a tree.
#include <baracuda/map.cuh>

#include "sort/sorted_row.cuh"

namespace baracuda {

struct Median {
  static BARACUDA_D i64 place(i64 n, i64 numbers) { return numbers < n ? numbers : (n - 1) / 2; }
};
struct NanMedian {
  static BARACUDA_D i64 place(i64, i64 numbers) { return numbers == 0 ? 0 : (numbers - 1) / 2; }
};
struct Mode {};

// Operands of the map: place, the row's first element in x.
template <class K, class U, class P> BARACUDA_D void place_of(const P& p) {
  const i64 c[1] = {thread_index()};
  if (c[0] >= p.chunks) return;
  i64 at[1][2];
  map_offsets(p, c, at);
  const auto row = row_at<U>(p, p.x, at[0][1]);
  static_cast<i64*>(p.place)[at[0][0]] = K::place(p.extent, p.floats ? numbers_of(row) : p.extent);
}

struct Run {
  i64 count, end;
};
struct LongerRun {  // of equally long ones the first
  static constexpr bool symmetric = true;
  static BARACUDA_D Run apply(Run a, Run b) {
    return b.count > a.count || (b.count == a.count && b.end < a.end) ? b : a;
  }
};

// Where a run begins, its end is looked for by steps that double, and then by halves.
template <class U, int THREADS, class P> BARACUDA_D void mode_of(const P& p) {
  const i64 c[1] = {static_cast<i64>(blockIdx.x)};
  i64 at[1][2];
  map_offsets(p, c, at);
  auto row = row_at<U>(p, p.x, at[0][1]);
  Run best{0, 0};
  for (i64 i = threadIdx.x; i < p.extent; i += THREADS) {
    const U here = row.rank(i);
    if (i > 0 && row.rank(i - 1) == here) continue;
    i64 known = i, far = 1;  // the element at `known` is of the run, that at i + far is not, or is none
    while (i + far < p.extent && row.rank(i + far) == here) known = i + far, far *= 2;
    i64 beyond = min(i + far, p.extent);
    while (beyond - known > 1) {
      const i64 mid = known + (beyond - known) / 2;
      (row.rank(mid) == here ? known : beyond) = mid;
    }
    best = LongerRun::apply(best, Run{known - i + 1, known});
  }
  best = block_reduce<LongerRun, THREADS>(best);
  if (threadIdx.x == 0) static_cast<i64*>(p.place)[at[0][0]] = best.end;
}

}  // namespace baracuda
