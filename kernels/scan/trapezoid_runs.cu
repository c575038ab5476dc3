// trapezoid_runs  what the area hands back along rows that are runs of memory: y = darea times half of what stands on
//                 either side of x, or times the step.
//
// The same arithmetic as trapezoid_backward.cu, to the bit, where a sum of one share begins with 0. Schedule runs.
#include <baracuda/runs.cuh>

namespace baracuda {

template <class T> struct Slopes {
  const T* darea;
  template <int N> BARACUDA_D acc_t<T> operator()(const i64 (&at)[N]) const { return to_acc(darea[at[2]]); }
};

// rising: above less below, as of x; else below less above, as of y. At an end stands the element itself, less or plus.
template <class T> BARACUDA_D void trapezoid_sides(const TrapezoidRunsParams& p) {
  using A = acc_t<T>;
  constexpr int V = vec_elems<T>;
  const bool rising = p.rising;
  const auto shares = [&](A darea, const T* x) {
    Vec<A, V> out;
#pragma unroll
    for (int k = 0; k < V; ++k) {
      const A below = to_acc(x[k]), above = to_acc(x[k + 2]);
      out[k] = darea * ((rising ? above - below : below - above) * A(0.5)) + A(0);
    }
    return cast_vec<T>(out);
  };
  const auto edge = [&](T x) { return rising ? x : cast<T>(-to_acc(x)); };
  const Slopes<T> slopes{static_cast<const T*>(p.darea)};
  runs<T, 3, 3>(p, static_cast<T*>(p.y), static_cast<const T*>(p.x), slopes, shares, edge);
}

template <class T> BARACUDA_D void trapezoid_steps(const TrapezoidRunsParams& p) {
  using A = acc_t<T>;
  const double spacing = p.spacing();
  const auto shares = [&](A darea, bool end) {
    const A step = static_cast<A>(spacing * (end ? 0.5 : 1.0));
    return cast<T>((step == A(0) ? A(0) : darea * step) + A(0));
  };
  constant_runs<T, 3>(p, static_cast<T*>(p.y), Slopes<T>{static_cast<const T*>(p.darea)}, shares);
}

}  // namespace baracuda
