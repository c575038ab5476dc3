// cumulative_trapezoid_backward  what the areas so far hand back to y or x. A panel is in all areas from its own on: the
//                                scan sums their slopes from the end, then an element takes from the panels beside it.
//
// Sums of slopes are carried as in scan/kinds.cuh and kept in double. The rest is in double, summed in acc_t<T> over the
// axes along which x is broadcast; baracuda/scan_axis.cuh and baracuda/reduce_axes.cuh say what fixes the orders.
// Schedules scan, then reduce over a map.
#include <baracuda/reduce_axes.cuh>
#include "scan/kinds.cuh"

namespace baracuda {

namespace kinds {

template <class T> struct Tails : Prefixes<T, RunningSum<T>> {
  using Outs = Types<double>;
  using Prefixes<T, RunningSum<T>>::Prefixes;
  template <class Y, class S, class X> BARACUDA_D void put(const Y& y, const S& s, const X&, i64) const {
    y.template at<0>() = RunningSum<T>::template value<double>(s);
  }
};

}  // namespace kinds

// The slopes of the panels before and behind an element, where there are such, times what each is worth per unit of it:
// half its width (of y), or half the sum of its heights (of x, whose panel before grows and whose panel behind shrinks).
template <class T> struct PanelShares {
  using Value = acc_t<T>;
  int has_before, has_behind, heights, even;
  double step;
  BARACUDA_D explicit PanelShares(const CumulativeTrapezoidBackwardParams& p)
      : has_before(p.has_before), has_behind(p.has_behind), heights(p.heights), even(p.even), step(p.spacing()) {}
  static BARACUDA_D void operands(const CumulativeTrapezoidBackwardParams& p, const void* (&x)[5]) {
    x[0] = p.before, x[1] = p.behind, x[2] = p.low, x[3] = p.own, x[4] = p.high;
  }
  BARACUDA_D double worth(T a, T b) const {
    if (even) return step;
    return heights ? cast<double>(a) + cast<double>(b) : cast<double>(b) - cast<double>(a);
  }
  BARACUDA_D Value operator()(double before, double behind, T low, T own, T high) const {
    double sum = 0;
    if (has_before) sum = before * (worth(low, own) * 0.5);
    if (has_behind) {
      const double share = behind * (worth(own, high) * 0.5);
      sum = heights ? sum - share : sum + share;
    }
    return static_cast<Value>(sum);
  }
};

}  // namespace baracuda
