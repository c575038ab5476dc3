// pointwise_loss_sum   terms of a loss, f(x, target, v) weight with f the functor of a kind (loss/terms), added up by the
//                      schedule reduce over a map of the operands.
//
// Terms are in acc_t<T>. What fixes the order of the sums stands in baracuda/reduce_axes.cuh: the number of elements,
// and their size.
#include "loss/pointwise_sums.cuh"
#include "loss/pointwise_terms.cuh"

namespace baracuda {

// Of two operands, or of three.
template <class K, class T> struct LossTerm {
  using Value = acc_t<T>;
  LossOptions<Value> options;
  template <class P> BARACUDA_D explicit LossTerm(const P& p) : options(p) {}
  template <class P> static BARACUDA_D void operands(const P& p, const void* (&at)[2]) {
    at[0] = p.x, at[1] = p.target;
  }
  template <class P> static BARACUDA_D void operands(const P& p, const void* (&at)[3]) {
    at[0] = p.x, at[1] = p.target, at[2] = p.third;
  }
  BARACUDA_D Value operator()(T x, T t) const { return K::term(options, to_acc(x), to_acc(t), options.third); }
  BARACUDA_D Value operator()(T x, T t, T v) const { return K::term(options, to_acc(x), to_acc(t), to_acc(v)); }
};

// Of any; bit 0 of `present` says that the third is an operand, bit 1 that the weights are.
template <class K, class T> struct WeightedLossTerm {
  using A = acc_t<T>;
  using Value = WeightedLoss<A>;
  LossOptions<A> options;
  int present;
  template <class P> BARACUDA_D explicit WeightedLossTerm(const P& p) : options(p), present(p.present) {}
  template <class P> static BARACUDA_D void operands(const P& p, const void* (&at)[4]) {
    at[0] = p.x, at[1] = p.target, at[2] = p.third, at[3] = p.weight;
  }
  BARACUDA_D Value operator()(T x, T t, T v, T w) const {
    const A weight = present & 2 ? to_acc(w) : A(1);
    const A found = K::term(options, to_acc(x), to_acc(t), present & 1 ? to_acc(v) : options.third);
    return {found * weight, weight};
  }
};

}  // namespace baracuda
