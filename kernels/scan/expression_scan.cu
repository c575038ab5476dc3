// expression_scan  y = a formula of (the merges so far, along an axis, of what a formula makes of the elements of x0, x1,
//                  …); schedule scan. The texts of both formulas and the kind `FormulaScan` follow this file in the unit.
//
// What fixes the order of merges stands in baracuda/scan_axis.cuh: the length of a row, and the size of its elements.
#include "elementwise/expression.cuh"
#include "scan/kinds.cuh"
#include "scan/recurrence.cuh"

namespace baracuda {

// Two values in place of the inputs or outputs that a kind has: x.at<n>().
template <class A, class B> struct ScanValues {
  A& first;
  B& second;
  template <int N> BARACUDA_D auto& at() const {
    if constexpr (N == 0) return first;
    else return second;
  }
};

namespace kinds {

// The extreme so far, without its place. A row begins with an element: of a wider integer, with its lower bits.
template <class T, class Order> struct RunningExtreme {
  using State = acc_t<T>;
  static BARACUDA_D State empty() { return Order::none(); }
  template <class A> static BARACUDA_D State of(A x) { return cast<State>(cast<T>(x)); }
  static BARACUDA_D State merge(State a, State b) { return Order::wins(b, a) ? b : a; }
  template <class R> static BARACUDA_D R value(State s) { return cast<R>(s); }
};
template <class T> using RunningMax = Prefixes<T, RunningExtreme<T, LastMax<T>>>;
template <class T> using RunningMin = Prefixes<T, RunningExtreme<T, LastMin<T>>>;

}  // namespace kinds
}  // namespace baracuda
