#pragma once
// planes     a thread makes one point of the target in N planes; geometry in schedules/planes.py.
//
// A point is a place along a leading axis and three spatial ones. TOGETHER: the N planes are neighbours in memory in every
// operand and move in one access; else they lie p.groups planes apart, so that neighbours in a warp have neighbours in
// memory along the axis that is contiguous. Planes past the last one are read as the last, and not written.
#include <baracuda/index.cuh>
#include <baracuda/vector.cuh>

namespace baracuda {

template <int N, bool TOGETHER> struct Spot {
  i64 point[4];
  i64 group;

  // False for threads past the last item.
  template <class P> BARACUDA_D bool find(const P& p) {
    u64 rest = static_cast<u64>(blockIdx.x) * planes_threads + threadIdx.x, digit;
    if (rest >= static_cast<u64>(p.items)) return false;
    if (p.inner) rest = divmod(rest, static_cast<u64>(p.groups), digit), group = static_cast<i64>(digit);
#pragma unroll
    for (int a = 3; a >= 0; --a) {
      rest = divmod(rest, static_cast<u64>(p.points[a]), digit);
      point[a] = static_cast<i64>(digit);
    }
    if (!p.inner) group = static_cast<i64>(rest);
    return true;
  }

  template <class P> BARACUDA_D i64 plane(const P& p, int k) const {
    return TOGETHER ? group * N : group + k * p.groups;
  }

  // Where the planes of operand n begin.
  template <class P> BARACUDA_D void begin(const P& p, int n, i64 (&at)[N]) const {
#pragma unroll
    for (int k = 0; k < (TOGETHER ? 1 : N); ++k) {
      at[k] = offset(min(plane(p, k), p.planes - 1), p.plane_rank, p.plane_shape, p.plane_steps[n]);
    }
  }
  // x at `step` elements behind where the planes begin.
  template <class T> BARACUDA_D Vec<acc_t<T>, N> read(const T* x, const i64 (&at)[N], i64 step) const {
    if constexpr (TOGETHER) {
      return to_acc(load<N>(x + (at[0] + step)));
    } else {
      Vec<acc_t<T>, N> found;
#pragma unroll
      for (int k = 0; k < N; ++k) found[k] = to_acc(x[at[k] + step]);
      return found;
    }
  }
  template <class P, class T> BARACUDA_D void write(const P& p, int n, T* y, const Vec<acc_t<T>, N>& value) const {
    i64 at[N], step = 0;
    begin(p, n, at);
#pragma unroll
    for (int a = 0; a < 4; ++a) step += point[a] * p.steps[n][a];
    if constexpr (TOGETHER) {
      store(y + (at[0] + step), from_acc<T>(value));
    } else {
#pragma unroll
      for (int k = 0; k < N; ++k) {
        if (plane(p, k) < p.planes) y[at[k] + step] = from_acc<T>(value[k]);
      }
    }
  }
};

}  // namespace baracuda
