// special_function   y = f(a, b), f(a, b, c) or f(a, b, c, d), f the functor of a kind (elementwise/); schedule
// map, operands broadcast by strides of 0.
//
// b may be a number of the parameters (a null pointer); c and d are null where f has fewer operands.
#include <baracuda/map.cuh>
#include <baracuda/math.cuh>

namespace baracuda {

template <template <class> class F, class T> struct SpecialFunctionOp {
  using A = acc_t<T>;
  const SpecialFunctionParams& p;
  A number;
  BARACUDA_D explicit SpecialFunctionOp(const SpecialFunctionParams& p) : p(p), number(static_cast<A>(p.b_number())) {}

  template <int V> struct Chunk {
    Vec<T, V> a, b, c, d;
  };
  template <int V> BARACUDA_D Chunk<V> read(const MapPlace<V, 5>& place) const {
    Chunk<V> in;
    in.a = place.load(static_cast<const T*>(p.a), 1);
    in.b = p.b != nullptr ? place.load(static_cast<const T*>(p.b), 2) : in.a;
    in.c = p.c != nullptr ? place.load(static_cast<const T*>(p.c), 3) : in.a;
    in.d = p.d != nullptr ? place.load(static_cast<const T*>(p.d), 4) : in.a;
    return in;
  }
  template <int V> BARACUDA_D void write(const MapPlace<V, 5>& place, const Chunk<V>& in, bool wanted) const {
    Vec<A, V> y;
#pragma unroll
    for (int k = 0; k < V; ++k) {
      y[k] = F<T>::value(to_acc(in.a[k]), p.b != nullptr ? to_acc(in.b[k]) : number, to_acc(in.c[k]), to_acc(in.d[k]));
    }
    if (wanted) place.store(static_cast<T*>(p.y), 0, cast_vec<T>(y));
  }
};

template <template <class> class F, class T, class L> BARACUDA_D void special_function(const SpecialFunctionParams& p) {
  map_chunks<L, 5>(p, SpecialFunctionOp<F, T>(p));
}

}  // namespace baracuda
