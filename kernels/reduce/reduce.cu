// reduce     y[kept] = finish(merge over the reduced axes of x), K the functor of a kind (reduce/); schedule reduce.
//
// What fixes the order of every sum stands in baracuda/reduce_axes.cuh: the number of reduced elements, and their size.
#include <baracuda/reduce_axes.cuh>

namespace baracuda::kinds {

// x as elements of W, in which kinds<W> reduces it.
template <class T, class W> struct Widened {
  using Value = acc_t<W>;
  template <class P> BARACUDA_D explicit Widened(const P&) {}
  template <class P> static BARACUDA_D void operands(const P& p, const void* (&x)[1]) { x[0] = p.x; }
  BARACUDA_D Value operator()(T x) const { return cast<Value>(x); }
};

}  // namespace baracuda::kinds
