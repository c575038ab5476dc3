// frexp      x = mantissa 2^exponent with 1/2 <= |mantissa| < 1; schedule map.
#include <baracuda/map.cuh>
#include <baracuda/math.cuh>

namespace baracuda {

// An unwanted output is a null pointer.
template <class T> struct FrexpOp {
  using A = acc_t<T>;
  const FrexpParams& p;

  template <int V> using Chunk = Vec<T, V>;
  template <int V> BARACUDA_D Chunk<V> read(const MapPlace<V, 3>& place) const {
    return place.load(static_cast<const T*>(p.x), 2);
  }
  template <int V> BARACUDA_D void write(const MapPlace<V, 3>& place, const Chunk<V>& x, bool wanted) const {
    Vec<A, V> mantissa;
    Vec<i32, V> exponent;
#pragma unroll
    for (int k = 0; k < V; ++k) {
      const A wide = to_acc(x[k]);
      int e;
      const A m = math::frexp(wide, &e);
      const bool ordinary = math::isfinite(wide) && wide != A(0);
      mantissa[k] = ordinary ? m : wide, exponent[k] = ordinary ? e : 0;
    }
    if (!wanted) return;
    if (p.mantissa != nullptr) place.store(static_cast<T*>(p.mantissa), 0, cast_vec<T>(mantissa));
    if (p.exponent != nullptr) place.store(static_cast<i32*>(p.exponent), 1, exponent);
  }
};
template <class T, class L> BARACUDA_D void frexp(const FrexpParams& p) { map_chunks<L, 3>(p, FrexpOp<T>{p}); }

}  // namespace baracuda
