// quantile   of sorted rows: y between two elements; quantile_backward: dx, a sum over the levels in their order. Schedule
//            map.
#include <baracuda/map.cuh>

#include "sort/sorted_row.cuh"

namespace baracuda {

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
  switch (static_cast<QuantileMethod>(p.method)) {
    case QuantileMethod::lower: at = floor(rank); break;
    case QuantileMethod::higher: at = ceil(rank); break;
    case QuantileMethod::nearest: at = rint(rank); break;
    case QuantileMethod::midpoint: at = 0.5 * (floor(rank) + ceil(rank)); break;
    case QuantileMethod::inverted_cdf: at = stepped(count * q - 1.0, true); break;
    case QuantileMethod::averaged_inverted_cdf: at = count * q - 1.0; break;
    case QuantileMethod::closest_observation:
      at = stepped(count * q - 1.0 - 0.5, fmod(floor(count * q - 1.0 - 0.5), 2.0) != 0.0);
      break;
    case QuantileMethod::between: at = count * q + (p.alpha + q * (1.0 - p.alpha - p.beta)) - 1.0; break;
    default: break;
  }
  if (at >= count - 1.0) return {numbers - 1, numbers - 1, 0.0, true};
  if (at < 0.0) return {0, 0, 0.0, true};
  const double low = floor(at);
  double weight = at - low;
  if (static_cast<QuantileMethod>(p.method) == QuantileMethod::averaged_inverted_cdf)
    weight = weight == 0.0 ? 0.5 : 1.0;
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
