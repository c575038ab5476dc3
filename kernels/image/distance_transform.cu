// distance_transform   from each place of an image or a volume to the nearest that is 0, and which that is
//
// Axis by axis (Saito and Toriwaki 1994): what is nearest along the row, then along columns the least of what rows found and
// the way there, then along planes. distance_rows has a warp for a row: the last place of 0 on either side, by ballots.
// distance_sweep has a thread for a place, which looks both ways until the way alone is too far, and leaves out segments
// of 32 places whose least, which distance_least finds, is. Ways are i32 where spacings are 1, else float64, the squares
// added from the last axis to the first; what is nearest does not depend on the order of looks, as ties go to the lowest.
#include <baracuda/reduce.cuh>
#include "image/volumes.cuh"

namespace baracuda {

template <class A> BARACUDA_D A none_near() {
  if constexpr (is_same<A, i32>) return numeric<i32>::top();
  else return numeric<A>::infinity();
}

// The way along one axis, and ways along several.
template <class A> struct Metric {
  DistanceMetric kind;
  A spacing;

  BARACUDA_D Metric(const DistanceParams& p, int axis)
      : kind(static_cast<DistanceMetric>(p.metric)), spacing(static_cast<A>(p.spacing[axis])) {}
  BARACUDA_D A way(i32 places) const {
    const A length = static_cast<A>(places) * spacing;
    return kind == DistanceMetric::euclidean ? length * length : length;
  }
  BARACUDA_D A join(A before, A way) const {
    return kind == DistanceMetric::chessboard ? max(before, way) : before + way;
  }
};

template <class T, class A> BARACUDA_D void distance_rows(const DistanceParams& p) {
  const int lane = lane_id();
  const i64 row = static_cast<i64>(blockIdx.x) * (distance_threads / warp_size) + threadIdx.x / warp_size;
  const i32 n = p.extents[2];
  u64 line;
  const i64 batch = static_cast<i64>(divmod(static_cast<u64>(row), static_cast<u64>(p.places / n), line));
  if (batch >= p.batches) return;
  const i32 number = static_cast<i32>(line) * n;
  const T* const x = static_cast<const T*>(p.x) + sample_offset<0>(p, batch) + VolumePlace(p, number).step<0>(p);
  A* const to = static_cast<A*>(p.to) + row * n;
  i32* const near = static_cast<i32*>(p.near_to) + row * n;
  const Metric<A> metric(p, 2);
  i32 last = -1;
#pragma unroll 2
  for (i32 from = 0; from < n; from += warp_size) {
    const i32 at = from + lane;
    const u32 votes = __ballot_sync(full_warp, at < n && !is_there(x[at * p.steps[0][2]]));
    const u32 before = votes & full_warp >> (warp_size - 1 - lane);
    if (at < n) near[at] = before != 0 ? from + warp_size - 1 - __clz(static_cast<int>(before)) : last;
    if (votes != 0) last = from + warp_size - 1 - __clz(static_cast<int>(votes));
  }
  last = -1;
#pragma unroll 2
  for (i32 from = (n - 1) / warp_size * warp_size; from >= 0; from -= warp_size) {
    const i32 at = from + lane, low = at < n ? near[at] : -1;
    const u32 votes = __ballot_sync(full_warp, low == at), after = votes & full_warp << lane;
    const i32 high = after != 0 ? from + __ffs(static_cast<int>(after)) - 1 : last;
    if (votes != 0) last = from + __ffs(static_cast<int>(votes)) - 1;
    if (at >= n) continue;
    const i32 found = low >= 0 && (high < 0 || at - low <= high - at) ? low : high;
    to[at] = found < 0 ? none_near<A>() : metric.way(found < at ? at - found : found - at);
    near[at] = found < 0 ? -1 : number + found;
  }
}

// Where along axis p.axis item `item` is, of `count` along it, and the items that lie before its line.
BARACUDA_D i64 line_of(const DistanceParams& p, u64 item, i32 count, i32& at, i32& column) {
  u64 own, inner;
  const u64 rest = divmod(item, static_cast<u64>(p.inner), inner);
  const u64 outer = divmod(rest, static_cast<u64>(count), own);
  at = static_cast<i32>(own), column = static_cast<i32>(inner);
  return static_cast<i64>(outer);
}

template <class A> BARACUDA_D void distance_least(const DistanceParams& p) {
  const i64 item = thread_index<i64>();
  const i32 n = p.extents[p.axis];
  i32 segment, column;
  const i64 outer = line_of(p, static_cast<u64>(item), p.segments, segment, column);
  if (item >= p.batches * (p.places / n) * p.segments) return;
  const A* const from = static_cast<const A*>(p.before) + outer * n * p.inner + column;
  const i32 begin = segment * distance_segment, many = min(distance_segment, n - begin);
  A least = none_near<A>();
#pragma unroll 4
  for (i32 k = 0; k < many; ++k) least = min(least, from[static_cast<i64>(begin + k) * p.inner]);
  static_cast<A*>(p.least)[item] = least;
}

template <class A> BARACUDA_D void hand_distance(const DistanceParams& p, i64 item, A best, i32 near) {
  u64 number;
  const i64 batch = static_cast<i64>(divmod(static_cast<u64>(item), static_cast<u64>(p.places), number));
  const VolumePlace place(p, static_cast<i32>(number));
  double value = best == none_near<A>() ? numeric<double>::infinity() : static_cast<double>(best);
  if (p.root) value = math::sqrt(value);
  const i64 at = sample_offset<1>(p, batch) + place.step<1>(p);
  if (p.wide) static_cast<double*>(p.distance)[at] = value;
  else static_cast<float*>(p.distance)[at] = static_cast<float>(value);
  if (p.indices == nullptr) return;
  const VolumePlace other = near < 0 ? VolumePlace{-1, -1, -1} : VolumePlace(p, near);
  i32* to = static_cast<i32*>(p.indices) + sample_offset<2>(p, batch) + place.step<2>(p);
  if (p.rank == 3) *to = other.z, to += p.index_step;
  to[0] = other.y, to[p.index_step] = other.x;
}

template <class A> BARACUDA_D void distance_sweep(const DistanceParams& p) {
  constexpr i32 segment = distance_segment;
  const i64 item = thread_index<i64>();
  if (item >= p.batches * p.places) return;
  const i32 n = p.extents[p.axis];
  i32 own, column;
  const i64 outer = line_of(p, static_cast<u64>(item), n, own, column), first = outer * n * p.inner + column;
  const A* const from = static_cast<const A*>(p.before) + first;
  const A* const least = static_cast<const A*>(p.least) + outer * p.segments * p.inner + column;
  const Metric<A> metric(p, p.axis);
  const A none = none_near<A>();
  A best = none;
  i32 nearest = -1;
  const auto visit = [&](i32 at) {
    const A before = from[static_cast<i64>(at) * p.inner];
    if (before == none) return;
    const A way = metric.join(before, metric.way(at < own ? own - at : at - own));
    if (way < best || (way == best && at < nearest)) best = way, nearest = at;
  };
  // Whether a segment whose first place on the way is `at` has none that is nearer than the best or, below, as near.
  const auto beyond = [&](i32 at) {
    const A before = least[static_cast<i64>(at / segment) * p.inner];
    if (before == none) return true;
    const A way = metric.join(before, metric.way(at < own ? own - at : at - own));
    return at < own ? way > best : way >= best;
  };
  i32 low = own, high = own + 1;
  bool down = true, up = high < n;
#pragma unroll 1
  while (down || up) {
    if (down) {
      if (low < own && low % segment == segment - 1 && beyond(low)) low -= segment;
      else visit(low--);
      down = low >= 0 && metric.way(own - low) <= best;
    }
    if (up) {
      if (high % segment == 0 && beyond(high)) high = n - high > segment ? high + segment : n;
      else visit(high++);
      up = high < n && metric.way(high - own) < best;
    }
  }
  const i32 near = p.indices == nullptr || nearest < 0
                       ? -1
                       : static_cast<const i32*>(p.near_from)[first + static_cast<i64>(nearest) * p.inner];
  if (p.last) return hand_distance(p, item, best, near);
  static_cast<A*>(p.to)[item] = best;
  if (p.indices != nullptr) static_cast<i32*>(p.near_to)[item] = near;
}

}  // namespace baracuda
