// pointwise_loss_backward   g = dloss weight / divisor times the slopes of the kind (loss/terms), for operands of the
// loss's shape; schedule map. An operand that was broadcast has its gradient from pointwise_loss_slope.cu.
//
// A gradient that is not wanted is a null pointer, as is an operand that is absent.
#include <baracuda/map.cuh>
#include "loss/pointwise_scale.cuh"
#include "loss/pointwise_terms.cuh"

namespace baracuda {

template <class K, class T> struct PointwiseLossBackwardOp {
  using A = acc_t<T>;
  const PointwiseLossBackwardParams& p;
  LossOptions<A> options;
  A scale;

  template <int V> struct Chunk {
    Vec<T, V> dloss, x, target, third, weight;
  };
  template <int V> BARACUDA_D Chunk<V> read(const MapPlace<V, 8>& place) const {
    Chunk<V> in;
    in.x = place.load(static_cast<const T*>(p.x), 4);
    in.target = place.load(static_cast<const T*>(p.target), 5);
    in.dloss = in.x, in.third = in.x, in.weight = in.x;
    if (p.per_element) in.dloss = place.load(static_cast<const T*>(p.dloss), 3);
    if (p.third != nullptr) in.third = place.load(static_cast<const T*>(p.third), 6);
    if (p.weight != nullptr) in.weight = place.load(static_cast<const T*>(p.weight), 7);
    return in;
  }
  template <int N, int V>
  BARACUDA_D void one(void* to, const MapPlace<V, 8>& place, const Chunk<V>& in, bool wanted) const {
    if (to == nullptr) return;
    Vec<A, V> made;
#pragma unroll
    for (int k = 0; k < V; ++k) {
      A g = p.per_element ? to_acc(in.dloss[k]) : scale;
      if (p.weight != nullptr) g *= to_acc(in.weight[k]);
      const A third = p.third != nullptr ? to_acc(in.third[k]) : options.third;
      made[k] = g * K::template slope<N>(options, to_acc(in.x[k]), to_acc(in.target[k]), third);
    }
    const Vec<T, V> dy = cast_vec<T>(made);
    if (wanted) place.store(static_cast<T*>(to), N, dy);
  }
  template <int V> BARACUDA_D void write(const MapPlace<V, 8>& place, const Chunk<V>& in, bool wanted) const {
    one<0>(p.dx, place, in, wanted);
    one<1>(p.dtarget, place, in, wanted);
    one<2>(p.dthird, place, in, wanted);
  }
};

template <class K, class T, class L> BARACUDA_D void pointwise_loss_backward(const PointwiseLossBackwardParams& p) {
  map_chunks<L, 8>(p, PointwiseLossBackwardOp<K, T>{p, LossOptions<acc_t<T>>(p), loss_scale<acc_t<T>>(p)});
}

}  // namespace baracuda
