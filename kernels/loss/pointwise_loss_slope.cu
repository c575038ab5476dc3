// pointwise_loss_slope  the gradient of an operand of a loss that was broadcast: g times a slope of
// the kind (loss/terms), summed over the axes it was broadcast along; schedule reduce over a map of all operands.
//
// What fixes the order of the sum stands in baracuda/reduce_axes.cuh: the number of its elements, and their size.
#include <baracuda/reduce_axes.cuh>
#include "loss/pointwise_scale.cuh"
#include "loss/pointwise_terms.cuh"
#include "reduce/sums.cuh"

namespace baracuda {

// Slope `which`. An operand that is absent is x in its place; bits of `present` as in pointwise_loss_sum.cu.
template <class K, class T> struct LossSlope {
  using Value = acc_t<T>;
  LossOptions<Value> options;
  Value scale;
  int which, present, per_element;
  template <class P>
  BARACUDA_D explicit LossSlope(const P& p)
      : options(p), scale(loss_scale<Value>(p)), which(p.which), present(p.present), per_element(p.per_element) {}
  template <class P> static BARACUDA_D void operands(const P& p, const void* (&at)[5]) {
    at[0] = p.each, at[1] = p.x, at[2] = p.target, at[3] = p.third, at[4] = p.weight;
  }
  BARACUDA_D Value operator()(T each, T x, T t, T v, T w) const {
    const Value a = to_acc(x), b = to_acc(t), c = present & 1 ? to_acc(v) : options.third;
    Value g = per_element ? to_acc(each) : scale;
    if (present & 2) g *= to_acc(w);
    if (which == 0) return g * K::template slope<0>(options, a, b, c);
    return g * (which == 1 ? K::template slope<1>(options, a, b, c) : K::template slope<2>(options, a, b, c));
  }
};

}  // namespace baracuda
