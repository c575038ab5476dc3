// pointwise_loss   loss = f(x, target, v) weight, f the functor of a kind (loss/terms): of every element by the schedule
//                  map, or added up by the schedule reduce over a map of the operands.
//
// Terms are in acc_t<T>. What fixes the order of the sums stands in baracuda/reduce_axes.cuh: the number of elements,
// and their size.
#include <baracuda/map.cuh>
#include "loss/pointwise_sums.cuh"
#include "loss/pointwise_terms.cuh"

namespace baracuda {

// ---- of every element -----------------------------------------------------------------------------------------------

template <class K, class T, class P> struct PointwiseLossOp {
  using A = acc_t<T>;
  const P& p;
  LossOptions<A> options;

  template <int V> struct Chunk {
    Vec<T, V> x, target, third, weight;
  };
  template <int V> BARACUDA_D Chunk<V> read(const MapPlace<V, 5>& place) const {
    Chunk<V> in;
    in.x = place.load(static_cast<const T*>(p.x), 1);
    in.target = place.load(static_cast<const T*>(p.target), 2);
    in.third = in.x, in.weight = in.x;
    if (p.third != nullptr) in.third = place.load(static_cast<const T*>(p.third), 3);
    if (p.weight != nullptr) in.weight = place.load(static_cast<const T*>(p.weight), 4);
    return in;
  }
  template <int V> BARACUDA_D void write(const MapPlace<V, 5>& place, const Chunk<V>& in, bool wanted) const {
    Vec<A, V> made;
#pragma unroll
    for (int k = 0; k < V; ++k) {
      const A third = p.third != nullptr ? to_acc(in.third[k]) : options.third;
      made[k] = K::term(options, to_acc(in.x[k]), to_acc(in.target[k]), third);
      if (p.weight != nullptr) made[k] *= to_acc(in.weight[k]);
    }
    const Vec<T, V> y = cast_vec<T>(made);
    if (wanted) place.store(static_cast<T*>(p.y), 0, y);
  }
};

template <class K, class T, class L, class P> BARACUDA_D void pointwise_loss(const P& p) {
  map_chunks<L, 5>(p, PointwiseLossOp<K, T, P>{p, LossOptions<acc_t<T>>(p)});
}

// ---- added up -------------------------------------------------------------------------------------------------------

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
