// pointwise_loss   loss = f(x, target, v) weight of every element, in acc_t<T>, f the functor of a kind (loss/terms);
//                  schedule map.
#include <baracuda/map.cuh>
#include "loss/pointwise_terms.cuh"

namespace baracuda {

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

}  // namespace baracuda
