// stochastic_cast   y = x in a float of fewer bits, up or down at random so that the mean is x; schedule map.
//
// |x| lies `part` of the way from the number below to the next one, a fraction that is exact; it becomes the next one
// where the word of the element's draw is below part 2^32. Draw n is element n of the Philox stream (philox.cuh), n the
// row-major number of the element: the offset in an operand without memory. What y holds is described by parameters, so
// that all targets share a kernel: every thread takes the same way.
#include <baracuda/math.cuh>
#include "random/draws.cuh"
#include "random/stochastic_code.cuh"

namespace baracuda {

template <class T> struct StochasticCastOp {
  using A = acc_t<T>;
  const StochasticCastParams& p;
  u64 seed, offset;

  BARACUDA_D explicit StochasticCastOp(const StochasticCastParams& p) : p(p), seed(p.seed()), offset(p.offset()) {}

  BARACUDA_D u32 code(A size, u32 word) const {
    if (size != size) return p.nan_code;
    return stochastic_code(FloatCodes{p.fraction, p.least, p.max_code, p.over_code}, size, word);
  }

  template <int V> using Chunk = Vec<T, V>;
  template <int V> BARACUDA_D Chunk<V> read(const MapPlace<V, 3>& place) const {
    return place.load(static_cast<const T*>(p.x), 1);
  }
  template <int V> BARACUDA_D void write(const MapPlace<V, 3>& place, const Chunk<V>& x, bool wanted) const {
    u32 words[V];
    draws<V>(seed, offset, place.at[2], words);
    Vec<u16, V> wide;
    Vec<u8, V> narrow;
#pragma unroll
    for (int k = 0; k < V; ++k) {
      const A value = to_acc(x[k]);
      const u32 sign = math::signbit(value) ? p.sign : 0u, found = code(math::abs(value), words[k]) | sign;
      wide[k] = static_cast<u16>(found), narrow[k] = static_cast<u8>(found);
    }
    if (!wanted) return;
    if (p.bytes == 2) place.store(static_cast<u16*>(p.y), 0, wide);
    else place.store(static_cast<u8*>(p.y), 0, narrow);
  }
};

template <class T, class L> BARACUDA_D void stochastic_cast(const StochasticCastParams& p) {
  map_chunks<L, 3>(p, StochasticCastOp<T>(p));
}

}  // namespace baracuda
