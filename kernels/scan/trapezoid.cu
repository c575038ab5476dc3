// trapezoid  the sum of (y[i] + y[i + 1]) / 2 times a step or x[i + 1] - x[i]; schedule reduce over maps of shifted views.
//
// Areas and sums are in acc_t<T>. What fixes the order of the sum stands in baracuda/reduce_axes.cuh.
#include <baracuda/reduce_axes.cuh>
#include "reduce/sums.cuh"

namespace baracuda {

template <class T> struct Panels {
  using Value = acc_t<T>;
  Value half;
  BARACUDA_D explicit Panels(const TrapezoidParams& p) : half(static_cast<Value>(p.spacing() * 0.5)) {}
  static BARACUDA_D void operands(const TrapezoidParams& p, const void* (&x)[2]) { x[0] = p.low, x[1] = p.high; }
  BARACUDA_D Value operator()(T low, T high) const { return (to_acc(low) + to_acc(high)) * half; }
};

template <class T> struct SpacedPanels {
  using Value = acc_t<T>;
  BARACUDA_D explicit SpacedPanels(const SpacedTrapezoidParams&) {}
  static BARACUDA_D void operands(const SpacedTrapezoidParams& p, const void* (&x)[4]) {
    x[0] = p.low, x[1] = p.high, x[2] = p.left, x[3] = p.right;
  }
  BARACUDA_D Value operator()(T low, T high, T left, T right) const {
    return (to_acc(low) + to_acc(high)) * ((to_acc(right) - to_acc(left)) * Value(0.5));
  }
};

}  // namespace baracuda
