// trapezoid_backward  what the area hands back to y or x: darea times (± low ± high) / 2, or a share of the step, summed over
//                     the axes along which x is broadcast; schedule reduce over a map.
//
// In acc_t<T>. What fixes the order of the sum stands in baracuda/reduce_axes.cuh.
#include <baracuda/reduce_axes.cuh>
#include "reduce/sums.cuh"

namespace baracuda {

template <class T> struct Shares {
  using Value = acc_t<T>;
  int low, high;  // -1, 0 or 1
  Value step;
  BARACUDA_D explicit Shares(const TrapezoidBackwardParams& p)
      : low(p.low_sign), high(p.high_sign), step(p.share == 0 ? Value(0) : static_cast<Value>(p.spacing() * p.share)) {}
  static BARACUDA_D void operands(const TrapezoidBackwardParams& p, const void* (&x)[3]) {
    x[0] = p.darea, x[1] = p.low, x[2] = p.high;
  }
  static BARACUDA_D Value signed_value(int sign, T x) {
    return sign == 0 ? Value(0) : sign < 0 ? -to_acc(x) : to_acc(x);
  }
  BARACUDA_D Value operator()(T darea, T below, T above) const {
    if (low == 0 && high == 0) return step == Value(0) ? Value(0) : to_acc(darea) * step;
    return to_acc(darea) * ((signed_value(low, below) + signed_value(high, above)) * Value(0.5));
  }
};

}  // namespace baracuda
