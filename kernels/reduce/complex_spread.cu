// complex_spread  y[kept] = var or std of complex numbers over the reduced axes; schedule reduce, in two launches: the means
//                 in double, then what lies between them and the elements (`Distance` of reduce/spread.cuh).
//
// What fixes the order of every sum stands in baracuda/reduce_axes.cuh: the number of reduced elements, and their size.
#include <baracuda/reduce_axes.cuh>
#include "reduce/spread.cuh"

namespace baracuda::kinds {

// The first element of a row, and the sum of what the others differ from it by: so the mean of equal elements is exact.
// A state of no elements has the first element 0.
struct FromFirst {
  complex<double> first, sum;
};
template <class T> struct Differences {
  using Value = FromFirst;
  template <class P> BARACUDA_D explicit Differences(const P&) {}
  template <class P> static BARACUDA_D void operands(const P& p, const void* (&x)[2]) { x[0] = p.x, x[1] = p.first; }
  BARACUDA_D Value operator()(T z, T first) const {
    const complex<double> base = cast<complex<double>>(first);
    return {base, cast<complex<double>>(z) - base};
  }
};
struct MeanFromFirst {
  using State = FromFirst;
  using Result = complex<double>;
  using Lane = Fold<MeanFromFirst>;
  static BARACUDA_D State fill() { return empty(); }
  static BARACUDA_D State empty() { return {0.0, 0.0}; }
  static BARACUDA_D State leaf(State x) { return x; }
  static BARACUDA_D State merge(State a, State b) {
    const bool none = a.first.re == 0 && a.first.im == 0;
    return {none ? b.first : a.first, a.sum + b.sum};
  }
  static BARACUDA_D Result finish(State s, const Reduced& r) {
    const double n = static_cast<double>(r.count);
    return {s.first.re + s.sum.re / n, s.first.im + s.sum.im / n};
  }
};

}  // namespace baracuda::kinds
