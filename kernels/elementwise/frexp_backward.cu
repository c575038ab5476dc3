// frexp_backward   dx = dmantissa 2^-exponent; schedule map.
#include <baracuda/map.cuh>
#include <baracuda/math.cuh>

namespace baracuda {

template <class T> struct FrexpBackwardOp {
  using A = acc_t<T>;
  const FrexpBackwardParams& p;

  template <int V> struct Chunk {
    Vec<T, V> dmantissa;
    Vec<i32, V> exponent;
  };
  template <int V> BARACUDA_D Chunk<V> read(const MapPlace<V, 3>& place) const {
    return {place.load(static_cast<const T*>(p.dmantissa), 1), place.load(static_cast<const i32*>(p.exponent), 2)};
  }
  template <int V> BARACUDA_D void write(const MapPlace<V, 3>& place, const Chunk<V>& in, bool wanted) const {
    Vec<A, V> dx;
#pragma unroll
    for (int k = 0; k < V; ++k) dx[k] = math::ldexp(to_acc(in.dmantissa[k]), -max(min(in.exponent[k], 5000), -5000));
    if (wanted) place.store(static_cast<T*>(p.dx), 0, cast_vec<T>(dx));
  }
};
template <class T, class L> BARACUDA_D void frexp_backward(const FrexpBackwardParams& p) {
  map_chunks<L, 3>(p, FrexpBackwardOp<T>{p});
}

}  // namespace baracuda
