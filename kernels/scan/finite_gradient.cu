// finite_gradient  y[i] = the slope of x at element i of a row, by its neighbours along one axis; and the gradient of that.
//
// A slope is low (x[f + 1] - x[f]) + high (x[f + 2] - x[f + 1]): second order inside, first or second at the ends. All is
// in double. The gradient dx[j] adds what the at most 5 slopes that read x[j] hand back, in the order of their elements.
// Schedule map: x has a stride of 0 along the axis, so that its offset is the row's, and the last operand is no
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
  constexpr int U = strided_elements;
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

// Between elements at one place a slope is infinite, or NaN where they are equal: shares of each would not tell.
BARACUDA_D double slope_of(const Slope& s, double a, double b, double c) {
  double y = s.even ? (c - a) / s.both : s.low * (b - a);
  if (!s.even && s.high != 0) y = math::fma(s.high, c - b, y);
  const bool apart = s.even ? s.both != 0 : math::isfinite(s.low) && math::isfinite(s.high);
  return math::isfinite(y) || !apart ? y : taken(s, a, b, c);
}
template <class T, class P> BARACUDA_D double slope_in(const P& p, const T* row, i64 i) {
  const Slope s = slope_at<T>(p, i);
  const T* const x = row + s.first * p.step;
  const double c = s.even || s.high != 0 ? cast<double>(x[2 * p.step]) : 0.0;
  return slope_of(s, cast<double>(x[0]), cast<double>(x[p.step]), c);
}
template <class T, class P> BARACUDA_D double handed_back(const P& p, const T* row, i64 j) {
  double dx = 0;
#pragma unroll 1
  for (i64 i = max<i64>(j - 2, 0); i <= min<i64>(j + 2, p.extent - 1); ++i) {
    const double share = share_of(slope_at<T>(p, i), j);
    if (share != 0) dx = math::fma(share, cast<double>(row[i * p.step]), dx);
  }
  return dx;
}

// ---- elements equally apart -----------------------------------------------------------------------------------------
//
// Between the ends y[i] = (x[i + 1] - x[i - 1]) / both, and the gradient is the same of dy with the other sign: a
// product with 1 / both, which a thread computes once. Where that leaves the range, and at the ends, an element is
// computed as above.

// NaN, which leads to the formulas above, where the inverse would not be normal, and for elements at given places.
template <class P> BARACUDA_D double inverse_of_both(const P& p) {
  const double both = p.spacing() + p.spacing(), size = math::abs(both);
  return p.places == nullptr && size > 0x1p-1000 && size < 0x1p1000 ? 1.0 / both : numeric<double>::nan();
}
// Whether all that element i takes, or gets back, is of slopes between the ends.
template <bool BACKWARD, class P> BARACUDA_D bool is_inside(const P& p, i64 i) {
  constexpr i64 room = BACKWARD ? 3 : 1;
  return i >= room && i < p.extent - room;
}
template <bool BACKWARD> BARACUDA_D double central(double before, double behind, double each) {
  return (BACKWARD ? before - behind : behind - before) * each;
}
// Element i of a row, in whatever way it is computed.
template <class T, bool BACKWARD, class P> BARACUDA_D T element_of(const P& p, const T* row, i64 i, double each) {
  if (is_inside<BACKWARD>(p, i)) {
    const T* const x = row + i * p.step;
    const double y = central<BACKWARD>(cast<double>(x[-p.step]), cast<double>(x[p.step]), each);
    if (math::isfinite(y)) return cast<T>(y);
  }
  return cast<T>(BACKWARD ? handed_back(p, row, i) : slope_in(p, row, i));
}

template <class T, bool BACKWARD, class P> BARACUDA_D void finite_gradient(const P& p) {
  const double each = inverse_of_both(p);
  each_place(p, [&](i64 out, i64 row, i64 i) {
    static_cast<T*>(p.y)[out] = element_of<T, BACKWARD>(p, static_cast<const T*>(p.x) + row, i, each);
  });
}

// Chunks of V elements, at rows and places `at` of U chunks: along an axis of which they share one place, so that
// neighbours are chunks too (ALONG false), or along the axis itself, whose elements are one apart. There an element that
// takes slopes at the ends is left to another launch, for a few lanes' divisions would hold up every block.
template <class T, int V, bool BACKWARD, bool ALONG, class P> BARACUDA_D void finite_gradient_chunks(const P& p) {
  constexpr int U = gradient_chunks;
  const i64 first = static_cast<i64>(blockIdx.x) * (map_threads * U) + threadIdx.x;
  if (first >= p.chunks) return;
  const double each = inverse_of_both(p);
  i64 c[U], at[U][3];
  Vec<T, V> before[U], behind[U];  // ALONG: the chunk itself, and its neighbours in the last two of the other
#pragma unroll
  for (int u = 0; u < U; ++u) c[u] = min<i64>(first + u * map_threads, p.chunks - 1);
  map_offsets(p, c, at);
#pragma unroll
  for (int u = 0; u < U; ++u) {
    const T* const row = static_cast<const T*>(p.x) + at[u][1];
    const i64 i = at[u][2];
    if constexpr (ALONG) {
      before[u] = load<V>(row + i);
      behind[u][0] = row[i > 0 ? i - 1 : i], behind[u][V - 1] = row[i + V < p.extent ? i + V : i];
    } else {
      before[u] = load<V>(row + (i > 0 ? i - 1 : i) * p.step);
      behind[u] = load<V>(row + (i + 1 < p.extent ? i + 1 : i) * p.step);
    }
  }
#pragma unroll
  for (int u = 0; u < U; ++u) {
    if (first + u * map_threads >= p.chunks) break;
    T* const to = static_cast<T*>(p.y) + at[u][0];
    const bool inside = is_inside<BACKWARD>(p, at[u][2]) && (!ALONG || is_inside<BACKWARD>(p, at[u][2] + V - 1));
    bool finite = true;
    Vec<T, V> y;
    double last = cast<double>(behind[u][0]), here = cast<double>(before[u][0]);  // ALONG: x[k - 1] and x[k]
#pragma unroll
    for (int k = 0; k < V; ++k) {
      double found;
      if constexpr (ALONG) {
        const double next = cast<double>(k + 1 < V ? before[u][k + 1] : behind[u][V - 1]);
        found = central<BACKWARD>(last, next, each);
        last = here, here = next;
      } else {
        found = central<BACKWARD>(cast<double>(before[u][k]), cast<double>(behind[u][k]), each);
      }
      finite = finite && math::isfinite(found);
      y[k] = cast<T>(found);
    }
    if (finite && inside) {
      store(to, y);
    } else if (ALONG && finite) {
#pragma unroll
      for (int k = 0; k < V; ++k) {
        if (is_inside<BACKWARD>(p, at[u][2] + k)) to[k] = y[k];
      }
    } else {
      const T* const row = static_cast<const T*>(p.x) + at[u][1];
#pragma unroll 1
      for (int k = 0; k < V; ++k) {
        const i64 i = ALONG ? at[u][2] + k : at[u][2];
        if (!ALONG || is_inside<BACKWARD>(p, i)) to[k] = element_of<T, BACKWARD>(p, ALONG ? row : row + k, i, each);
      }
    }
  }
}

}  // namespace baracuda
