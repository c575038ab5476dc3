// statistics  of sorted rows. place_of: where the median stands; mode_of: where the longest run of equal elements ends;
//             quantile: y between two elements; quantile_backward: dx, a sum over the levels in their order. Schedule
//             map, but for mode_of, which has a block for every row and merges counts by a tree.
#include <baracuda/map.cuh>

#include "sort/sorted_row.cuh"

namespace baracuda {

template <class U> BARACUDA_D i64 numbers_of(const SortedRow<U>& row) {  // elements before the first NaN
  return row.before(static_cast<U>(~U(0)), false);
}
template <class U, class P> BARACUDA_D SortedRow<U> row_at(const P& p, const void* x, i64 at) {
  return {static_cast<const U*>(x) + at, nullptr, p.extent, p.step, 0, false, KeyOrder<U>(p.order)};
}

// ---- places of a row ------------------------------------------------------------------------------------------------

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

// ---- quantiles ------------------------------------------------------------------------------------------------------

enum QuantileMethod {
  q_linear,
  q_lower,
  q_higher,
  q_nearest,
  q_midpoint,
  q_inverted,
  q_averaged,
  q_closest,
  q_general
};

// Elements low and high of a row, and the weight of the high one.
struct Between {
  i64 low, high;
  double weight;
  bool known;
};
template <class P> BARACUDA_D double level_at(const P& p, i64 at) {
  double q = p.level();
  if (p.q != nullptr) q = p.q_wide ? static_cast<const double*>(p.q)[at] : static_cast<const float*>(p.q)[at];
  return p.percent ? q / 100.0 : q;
}
// Element h of n of a step function: where `at` is whole and `stay`, itself, else the next.
BARACUDA_D double stepped(double at, bool stay) {
  const double low = floor(at);
  return fmax(at == low && stay ? low : low + 1.0, 0.0);
}
template <class P> BARACUDA_D Between between(const P& p, i64 n, i64 numbers, double q) {
  if (!(q >= 0.0 && q <= 1.0)) return {0, 0, 0.0, false};
  if (numbers < n && !p.pass_nan) return {n - 1, n - 1, 0.0, true};  // which is NaN
  if (numbers == 0) return {0, 0, 0.0, true};
  const double count = static_cast<double>(numbers), rank = (count - 1.0) * q;
  double at = rank;
  switch (p.method) {
    case q_lower: at = floor(rank); break;
    case q_higher: at = ceil(rank); break;
    case q_nearest: at = rint(rank); break;
    case q_midpoint: at = 0.5 * (floor(rank) + ceil(rank)); break;
    case q_inverted: at = stepped(count * q - 1.0, true); break;
    case q_averaged: at = count * q - 1.0; break;
    case q_closest: at = stepped(count * q - 1.0 - 0.5, fmod(floor(count * q - 1.0 - 0.5), 2.0) != 0.0); break;
    case q_general: at = count * q + (p.alpha + q * (1.0 - p.alpha - p.beta)) - 1.0; break;
    default: break;
  }
  if (at >= count - 1.0) return {numbers - 1, numbers - 1, 0.0, true};
  if (at < 0.0) return {0, 0, 0.0, true};
  const double low = floor(at);
  double weight = at - low;
  if (p.method == q_averaged) weight = weight == 0.0 ? 0.5 : 1.0;
  const i64 first = static_cast<i64>(low);
  return {first, first + 1, weight, true};
}

// Operands of the map: y, q, the row's first element in x.
template <class T, class P> BARACUDA_D void quantile(const P& p) {
  using U = key_word<T>;
  const i64 c[1] = {thread_index()};
  if (c[0] >= p.chunks) return;
  i64 at[1][3];
  map_offsets(p, c, at);
  const auto row = row_at<U>(p, p.x, at[0][2]);
  const Between b = between(p, p.extent, numbers_of(row), level_at(p, at[0][1]));
  const T* x = static_cast<const T*>(p.x) + at[0][2];
  double y = numeric<double>::nan();
  if (b.known) {
    const double low = cast<double>(x[b.low * p.step]), high = cast<double>(x[b.high * p.step]);
    if (b.weight == 0.0 || low == high) y = low;
    else if (b.weight == 1.0) y = high;
    else y = low * (1.0 - b.weight) + high * b.weight;
  }
  static_cast<T*>(p.y)[at[0][0]] = cast<T>(y);
}

// Operands of the map: dx, its place in the row, the row's first element in x, the row's dy of the first level.
template <class T, class P> BARACUDA_D void quantile_backward(const P& p) {
  using U = key_word<T>;
  const i64 c[1] = {thread_index()};
  if (c[0] >= p.chunks) return;
  i64 at[1][4];
  map_offsets(p, c, at);
  const auto row = row_at<U>(p, p.x, at[0][2]);
  const i64 numbers = numbers_of(row), own = at[0][1];
  const T* dy = static_cast<const T*>(p.dy) + at[0][3];
  double sum = 0.0;
  for (i64 k = 0; k < p.levels; ++k) {
    const Between b = between(p, p.extent, numbers, level_at(p, k * p.q_step));
    if (!b.known || (own != b.low && own != b.high)) continue;
    double share = own == b.low ? 1.0 - b.weight : b.weight;
    if (b.low == b.high) share = 1.0;
    if (share != 0.0) sum = math::fma(share, cast<double>(dy[k * p.dy_step]), sum);
  }
  static_cast<T*>(p.dx)[at[0][0]] = cast<T>(sum);
}

}  // namespace baracuda
