// complex_unary_backward   dx = dy conj(f'(z)), or the gradient of a real f, the functor of a kind (elementwise/complex/);
// schedule map.
#include <baracuda/complex.cuh>
#include <baracuda/map.cuh>

namespace baracuda {

// dy is complex or real, as f is.
template <class G, class D, class T> struct ComplexGradient {
  T* dx;
  const D* dy;
  const T* x;

  template <int V> struct Chunk {
    Vec<D, V> dy;
    Vec<T, V> x;
  };
  template <int V> BARACUDA_D Chunk<V> read(const MapPlace<V, 3>& place) const {
    return {place.load(dy, 1), place.load(x, 2)};
  }
  template <int V> BARACUDA_D void write(const MapPlace<V, 3>& place, const Chunk<V>& in, bool wanted) const {
    Vec<T, V> out;
#pragma unroll
    for (int k = 0; k < V; ++k) out[k] = G::value(in.dy[k], in.x[k]);
    if (wanted) place.store(dx, 0, out);
  }
};

template <template <class> class G, class T, class L>
BARACUDA_D void complex_unary_backward(const ComplexUnaryBackwardParams& p) {
  using F = G<part_t<T>>;
  using D = typename F::Cotangent;
  map_chunks<L, 3>(
      p, ComplexGradient<F, D, T>{static_cast<T*>(p.dx), static_cast<const D*>(p.dy), static_cast<const T*>(p.x)});
}

}  // namespace baracuda
