// fp8_cast   y = x . scale as fp8, and amax = the larger of itself and all |x|: one read of x. Schedule map. A product is
// rounded to float and then to fp8; a maximum depends on no order.
#include <baracuda/map.cuh>
#include <baracuda/quantize.cuh>
#include "quantize/amax.cuh"

namespace baracuda {

template <class T> struct Fp8Cast {
  const Fp8CastParams& p;
  const float scale;
  const quantize::Coder coder;
  mutable float most = 0.0f;

  BARACUDA_D explicit Fp8Cast(const Fp8CastParams& params)
      : p(params), scale(static_cast<float>(params.scale())), coder(params.code) {}
  template <int V> using Chunk = Vec<T, V>;
  template <int V> BARACUDA_D Chunk<V> read(const MapPlace<V, 2>& place) const {
    return place.load(static_cast<const T*>(p.x), 1);
  }
  template <int V> BARACUDA_D void write(const MapPlace<V, 2>& place, const Chunk<V>& x, bool wanted) const {
    Vec<float, V> v = to_acc(x);
    Vec<u8, V> codes;
#pragma unroll
    for (int k = 0; k < V; ++k) most = math::maximum(most, math::abs(v[k])), v[k] *= scale;
    if constexpr (V % 4 == 0) {
      codes = quantize::codes_of(v, coder, math::isfinite(most) && math::isfinite(scale));
    } else {
#pragma unroll
      for (int k = 0; k < V; ++k) codes[k] = coder(v[k]);
    }
    if (wanted) place.store(static_cast<u8*>(p.y), 0, codes);
  }
};

template <class T, class L> BARACUDA_D void fp8_cast(const Fp8CastParams& p) {
  const Fp8Cast<T> cast(p);
  map_chunks<L, 2>(p, cast);
  quantize::raise<map_threads>(static_cast<float*>(p.amax), cast.most);
}

}  // namespace baracuda
