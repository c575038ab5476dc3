// cumulative_trapezoid  the areas of trapezoid.cu so far, in double, carried with twice its digits for double. Schedule scan.
//
// What fixes the order of merges stands in baracuda/scan_axis.cuh: the length of a row, and the size of its elements.
#include "scan/kinds.cuh"

namespace baracuda::kinds {

// Inputs y[i], y[i + 1], and where they are SPACED x[i], x[i + 1]; else the step is p.spacing.
template <class T, bool SPACED> struct Areas : RunningSum<T> {
  using element = T;
  using Sum = RunningSum<T>;
  using State = typename Sum::State;
  using Ins = conditional<SPACED, Types<T, T, T, T>, Types<T, T>>;
  using Outs = Types<T>;
  static constexpr int leaves = Ins::count;
  static constexpr bool halo = false;
  double spacing;

  template <class P> BARACUDA_D Areas(const P& p, const ScanPlaces&) : spacing(SPACED ? 0.0 : p.spacing()) {}
  static BARACUDA_D int shift(int) { return 0; }
  static BARACUDA_D State begin() { return Sum::empty(); }
  template <class X> BARACUDA_D State leaf(const X& x, i64) const {
    double width = spacing;
    if constexpr (SPACED) width = cast<double>(x.template at<3>()) - cast<double>(x.template at<2>());
    return Sum::of((cast<double>(x.template at<0>()) + cast<double>(x.template at<1>())) * (width * 0.5));
  }
  template <class Y, class X> BARACUDA_D void put(const Y& y, const State& s, const X&, i64) const {
    y.template at<0>() = Sum::template value<T>(s);
  }
  static BARACUDA_D void end(const State&) {}
};

}  // namespace baracuda::kinds
