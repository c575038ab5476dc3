// unwrap     y[i] = x[i] less the turns that neighbours x[0] … x[i] jumped, a turn being p.period(). Schedule scan.
//
// What is carried is a number of turns in double, a sum of integers: exact in any order below 2^53. A NaN or an infinity
// makes NaN of what follows.
#include "scan/kinds.cuh"

namespace baracuda::kinds {

template <class T> struct Unwrapped {
  using element = T;
  using State = double;
  using Ins = Types<T, T>;  // x[i] and x[i - 1]
  using Outs = Types<T>;
  static constexpr int leaves = 2;
  static constexpr bool halo = true;
  double period, least;

  template <class P> BARACUDA_D Unwrapped(const P& p, const ScanPlaces&) : period(p.period()), least(p.discont()) {}
  BARACUDA_D int shift(int n) const { return n == 0 ? 0 : -1; }
  static BARACUDA_D State empty() { return 0.0; }
  static BARACUDA_D State begin() { return 0.0; }
  // The turns of a jump of at least half a period: of one of exactly that in its own direction none.
  template <class X> BARACUDA_D State leaf(const X& x, i64 r) const {
    if (r == 0) return 0.0;
    const double jump = cast<double>(x.template at<0>()) - cast<double>(x.template at<1>());
    if (math::abs(jump) < least) return 0.0;
    const double shifted = jump + period * 0.5;
    double turns = math::floor(shifted / period);
    const double rest = math::fma(-turns, period, shifted);  // of a rounded quotient
    if (rest != rest) return rest;                           // an infinite jump has no number of turns
    if (rest < 0) turns -= 1.0;
    if (rest >= period) turns += 1.0;
    if (rest == 0 && jump > 0) turns -= 1.0;
    return turns;
  }
  static BARACUDA_D State merge(State a, State b) { return a + b; }
  template <class Y, class X> BARACUDA_D void put(const Y& y, const State& turns, const X& x, i64) const {
    y.template at<0>() = cast<T>(math::fma(-turns, period, cast<double>(x.template at<0>())));
  }
  static BARACUDA_D void end(const State&) {}
};

}  // namespace baracuda::kinds
