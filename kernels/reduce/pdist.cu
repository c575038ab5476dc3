// pdist      y[k] = the norm of x[i] - x[j], k counting the pairs i < j of rows; and dx of it. One launch each.
//
// A group of lanes has a pair: lane l takes features l, l + lanes, …, in order, 64 at a time, then merges with the lanes
// beside it; lanes follow from the number of features. dx[i, f] adds what each pair with row i hands back, in the order of
// the other rows. Differences and sums are in double, results rounded once.
#include <baracuda/reduce_axes.cuh>
#include "reduce/counts.cuh"
#include "reduce/extremes.cuh"
#include "reduce/norms.cuh"
#include "reduce/sums.cuh"

namespace baracuda {

constexpr int pdist_run = 64;

// Pairs before those of row i with the rows after it.
template <class P> BARACUDA_D i64 pairs_before(const P& p, i64 i) { return i * (2 * p.rows - i - 1) / 2; }

// The row i of pair k: the root of a quadratic, put right where double has lost digits of it.
template <class P> BARACUDA_D i64 first_of_pair(const P& p, i64 k) {
  const double half = static_cast<double>(p.rows) - 0.5;
  i64 i = static_cast<i64>(half - math::sqrt(math::fmax(half * half - 2.0 * static_cast<double>(k), 0.0)));
  i = max<i64>(min<i64>(i, p.rows - 2), 0);
  while (i > 0 && pairs_before(p, i) > k) --i;
  while (pairs_before(p, i + 1) <= k) ++i;
  return i;
}

// Of a difference as a kind of norm takes it.
template <class K> struct OfDifference {
  template <class P> static BARACUDA_D typename K::State leaf(const P& p, double d) {
    if constexpr (is_same<typename K::State, kinds::Powers>) return {math::abs(d), 1.0, p.order, 0.0};
    else return K::leaf(d);
  }
};

template <class K, class T, class P> BARACUDA_D void pdist(const P& p) {
  using State = typename K::State;
  const int lanes = p.lanes, first = lane_id() & (lanes - 1), shift = log2_of(lanes);
  const i64 block = static_cast<i64>(blockIdx.y) * gridDim.x + blockIdx.x;
  const i64 pair = block * (pdist_threads >> shift) + (static_cast<int>(threadIdx.x) >> shift);
  const bool mine = pair < p.pairs;
  const i64 i = mine ? first_of_pair(p, pair) : 0, j = mine ? pair - pairs_before(p, i) + i + 1 : 0;
  const T* const x = static_cast<const T*>(p.x);
  const T* const a = x + i * p.row;
  const T* const b = x + j * p.row;
  State s = K::empty();
#pragma unroll 1
  for (i64 start = first; mine && start < p.features; start += static_cast<i64>(pdist_run) * lanes) {
    State run = K::empty();
#pragma unroll 2
    for (int n = 0; n < pdist_run; ++n) {
      const i64 f = start + static_cast<i64>(n) * lanes;
      if (f >= p.features) break;
      const double d = cast<double>(a[f * p.feature]) - cast<double>(b[f * p.feature]);
      run = K::merge(run, OfDifference<K>::leaf(p, d));
    }
    s = K::merge(s, run);
  }
  s = merge_lanes<K>(s, lanes);
  if (mine && first == 0) static_cast<T*>(p.y)[pair * p.step] = cast<T>(K::finish(s, Reduced{p.features, 0}));
}

// The slope of the norm y by the difference d of one feature: 0 at 0, and of the largest that of each that is as large.
template <class T, class P> BARACUDA_D double pdist_slope(const P& p, double d, T norm) {
  const double y = cast<double>(norm), sign = static_cast<double>(d > 0) - static_cast<double>(d < 0);
  if (p.order == 1) return sign;
  if (math::isinf(p.order)) return cast<double>(cast<T>(math::abs(d))) == y ? sign : 0.0;
  if (y == 0 || d == 0 || p.order == 0) return 0.0;
  if (p.order == 2) return d / y;
  return sign * math::pow(math::abs(d) / y, p.order - 1);
}

template <class T, class P> BARACUDA_D void pdist_backward(const P& p) {
  const i64 block = static_cast<i64>(blockIdx.y) * gridDim.x + blockIdx.x;
  const i64 at = block * pdist_threads + threadIdx.x;
  if (at >= p.rows * p.features) return;
  const i64 i = at / p.features, f = at - i * p.features;
  const T* const x = static_cast<const T*>(p.x) + f * p.feature;
  const double own = cast<double>(x[i * p.row]);
  double dx = 0;
#pragma unroll 1
  for (i64 j = 0; j < p.rows; ++j) {
    if (j == i) continue;
    const i64 pair = j > i ? pairs_before(p, i) + j - i - 1 : pairs_before(p, j) + i - j - 1;
    const double slope = pdist_slope(p, own - cast<double>(x[j * p.row]), static_cast<const T*>(p.y)[pair * p.step]);
    dx += cast<double>(static_cast<const T*>(p.dy)[pair * p.dy_step]) * slope;
  }
  static_cast<T*>(p.dx)[i * p.dx_row + f * p.dx_feature] = cast<T>(dx);
}

}  // namespace baracuda
