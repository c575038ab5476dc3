// complex_cast   y = cast<To>(x), To complex<float>, complex<double> or bool by a parameter, of real and complex x; schedule
// map, one element at a time.
#include <baracuda/map.cuh>

namespace baracuda {

template <class T> struct ComplexCast {
  void* y;
  const T* x;
  int to;  // 0 complex<float>, 1 complex<double>, 2 bool

  template <int V> using Chunk = Vec<T, V>;
  template <int V> BARACUDA_D Chunk<V> read(const MapPlace<V, 2>& place) const { return place.load(x, 1); }
  template <class To, int V> BARACUDA_D void put(const MapPlace<V, 2>& place, const Chunk<V>& in) const {
    place.store(static_cast<To*>(y), 0, cast_vec<To>(in));
  }
  template <int V> BARACUDA_D void write(const MapPlace<V, 2>& place, const Chunk<V>& in, bool wanted) const {
    if (!wanted) return;
    if (to == 0) put<complex<float>>(place, in);
    else if (to == 1) put<complex<double>>(place, in);
    else if constexpr (is_complex<T>) put<bool>(place, in);
  }
};

template <class T> BARACUDA_D void complex_cast(const ComplexCastParams& p) {
  map_chunks<Strided<1, strided_elements>, 2>(p, ComplexCast<T>{p.y, static_cast<const T*>(p.x), p.to});
}

}  // namespace baracuda
