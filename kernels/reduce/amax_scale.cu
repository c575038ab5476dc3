// amax_scale  z[kept] = the largest magnitude over the reduced axes of x, y = what brings it to a format's largest number;
//             schedule reduce.
//
// Magnitudes are exact, so no order counts. The scale is computed in double and rounded once.
#include <baracuda/reduce_axes.cuh>
#include "reduce/extremes.cuh"

namespace baracuda::kinds {

template <class T> struct AmaxScale : MaxNorm<T> {
  using A = acc_t<T>;
  using Result = A;
  using Second = A;
  using TakesParameters = void;
  template <class P> static BARACUDA_D Result finish(A amax, const Reduced&, const P& p) {
    if (amax == A(0) || !math::isfinite(amax)) return A(1);
    const double size = math::fmax(static_cast<double>(amax), p.eps);
    double scale = math::fmin(p.limit / size, static_cast<double>(numeric<A>::max()));
    if (p.power_of_two) {
      const int e = ::ilogb(scale);  // the quotient may have been rounded up to a power of two
      const double power = math::ldexp(1.0, e);
      scale = power * size > p.limit ? power * 0.5 : power;
    }
    return static_cast<A>(p.inverse ? 1.0 / scale : scale);
  }
  static BARACUDA_D Second second(A amax, const Reduced&) { return amax; }
};

}  // namespace baracuda::kinds
