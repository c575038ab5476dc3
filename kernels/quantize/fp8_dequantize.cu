// fp8_dequantize   y = the number of x . scale, rounded to float and then to y's element. Schedule map.
#include <baracuda/map.cuh>
#include <baracuda/quantize.cuh>

namespace baracuda {

template <class T> struct Fp8Value {
  const Fp8DequantizeParams& p;
  const float scale;

  template <int V> using Chunk = Vec<u8, V>;
  template <int V> BARACUDA_D Chunk<V> read(const MapPlace<V, 2>& place) const {
    return place.load(static_cast<const u8*>(p.x), 1);
  }
  template <int V> BARACUDA_D void write(const MapPlace<V, 2>& place, const Chunk<V>& x, bool wanted) const {
    Vec<float, V> v;
#pragma unroll
    for (int k = 0; k < V; ++k) {
      v[k] = (p.code == quantize::to_e4m3 ? coded_value<code_e4m3>(x[k]) : coded_value<code_e5m2>(x[k])) * scale;
    }
    if (wanted) place.store(static_cast<T*>(p.y), 0, from_acc<T>(v));
  }
};

template <class T, class L> BARACUDA_D void fp8_dequantize(const Fp8DequantizeParams& p) {
  map_chunks<L, 2>(p, Fp8Value<T>{p, static_cast<float>(p.scale())});
}

}  // namespace baracuda
