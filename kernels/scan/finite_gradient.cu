// finite_gradient  y[i] = the slope of x at element i of a row, by its neighbours along one axis; and the gradient of that.
//
// A slope is low (x[f + 1] - x[f]) + high (x[f + 2] - x[f + 1]): second order inside, first or second at the ends. All is
// in acc_t<T>. The gradient dx[j] adds what the at most 5 slopes that read x[j] hand back, in the order of their elements.
// Schedule map, strided: x has a stride of 0 along the axis, so that its offset is the row's, and the last operand is no
// memory: its offset is the element's place in the row.
#include <baracuda/map.cuh>
#include <baracuda/math.cuh>

namespace baracuda {

struct Slope {
  i64 first;
  double low, high, both;  // both: widths
  bool even;               // a central slope between equal widths, (x[f + 2] - x[f]) / both
};

// Between elements i and i + 1.
template <class T, class P> BARACUDA_D double width_at(const P& p, i64 i) {
  if (p.places == nullptr) return p.spacing();
  const T* const at = static_cast<const T*>(p.places) + i * p.place_step;
  return cast<double>(at[p.place_step]) - cast<double>(at[0]);
}

template <class T, class P> BARACUDA_D Slope slope_at(const P& p, i64 i) {
  const i64 last = p.extent - 1;
  if (p.edge_order == 1 && (i == 0 || i == last)) {
    const i64 first = i == 0 ? 0 : last - 1;
    return {first, 1.0 / width_at<T>(p, first), 0.0, 0.0, false};
  }
  const i64 first = max<i64>(min<i64>(i - 1, last - 2), 0);
  const double before = width_at<T>(p, first), behind = width_at<T>(p, first + 1), both = before + behind;
  if (i == 0) return {first, (1.0 + before / both) / before, -(before / both) / behind, both, false};
  if (i == last) return {first, -(behind / both) / before, (1.0 + behind / both) / behind, both, false};
  return {first, (behind / both) / before, (before / both) / behind, both, before == behind};
}

// How often slope s takes x[j].
BARACUDA_D double share_of(const Slope& s, i64 j) {
  const i64 k = j - s.first;
  if (s.even) return k == 2 ? 1.0 / s.both : k == 0 ? -(1.0 / s.both) : 0.0;
  return k == 0 ? -s.low : k == 1 ? s.low - s.high : k == 2 ? s.high : 0.0;
}

// The same slope of elements whose differences leave the range, or are of infinities: what it takes of each. Parts of
// doubles stay in the range.
BARACUDA_D double taken(const Slope& s, double a, double b, double c) {
  constexpr double part = 0x1p-4;
  const double x[3] = {a, b, c};
  double y = 0;
#pragma unroll
  for (int k = 0; k < 3; ++k) {
    const double share = share_of(s, s.first + k);
    if (share != 0) y = math::fma(share, x[k] * part, y);
  }
  return y / part;
}

template <class P, class F> BARACUDA_D void each_place(const P& p, const F& f) {
  constexpr int U = Strided<1>::unroll;
  const i64 first = static_cast<i64>(blockIdx.x) * (map_threads * U) + threadIdx.x;
  if (first >= p.chunks) return;
  i64 c[U], at[U][3];
#pragma unroll
  for (int u = 0; u < U; ++u) c[u] = min<i64>(first + u * map_threads, p.chunks - 1);
  map_offsets(p, c, at);
#pragma unroll 1
  for (int u = 0; u < U; ++u) {
    if (first + u * map_threads < p.chunks) f(at[u][0], at[u][1], at[u][2]);
  }
}

template <class T, class P> BARACUDA_D void finite_gradient(const P& p) {
  each_place(p, [&](i64 out, i64 row, i64 i) {
    const Slope s = slope_at<T>(p, i);
    const T* const x = static_cast<const T*>(p.x) + row + s.first * p.step;
    const double a = cast<double>(x[0]), b = cast<double>(x[p.step]);
    const double c = s.even || s.high != 0 ? cast<double>(x[2 * p.step]) : 0.0;
    double y = s.even ? (c - a) / s.both : s.low * (b - a);
    if (!s.even && s.high != 0) y = math::fma(s.high, c - b, y);
    if (!math::isfinite(y)) y = taken(s, a, b, c);
    static_cast<T*>(p.y)[out] = cast<T>(y);
  });
}

template <class T, class P> BARACUDA_D void finite_gradient_backward(const P& p) {
  each_place(p, [&](i64 out, i64 row, i64 j) {
    const T* const dy = static_cast<const T*>(p.x) + row;
    double dx = 0;
#pragma unroll 1
    for (i64 i = max<i64>(j - 2, 0); i <= min<i64>(j + 2, p.extent - 1); ++i) {
      const double share = share_of(slope_at<T>(p, i), j);
      if (share != 0) dx = math::fma(share, cast<double>(dy[i * p.step]), dx);
    }
    static_cast<T*>(p.y)[out] = cast<T>(dx);
  });
}

}  // namespace baracuda
