// stochastic_cast   y = x in a float of fewer bits, up or down at random so that the mean is x; schedule map.
//
// |x| lies `part` of the way from the number below to the next one, a fraction that is exact; it becomes the next one
// where the word of the element's draw is below part 2^32. Draw n is element n of the Philox stream (philox.cuh), n the
// row-major number of the element: the offset in an operand without memory. What y holds is described by parameters, so
// that all targets share a kernel: every thread takes the same way.
#include <baracuda/math.cuh>
#include <baracuda/map.cuh>
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

  // The codes of a chunk whose numbers are all normal numbers of the target, and below its largest: the upper bits of a
  // float, but for a constant, and the lower bits say how often the next one is taken.
  template <int V> BARACUDA_D bool inside(const Vec<T, V>& x, const u32 (&words)[V], u32 (&found)[V]) const {
    if constexpr (is_same<A, float>) {
      const u32 down = 23 - p.fraction, up = 9 + p.fraction, apart = static_cast<u32>(p.least + 126) << p.fraction;
      u32 bits[V], least = ~0u, most = 0;
#pragma unroll
      for (int k = 0; k < V; ++k) {
        bits[k] = __float_as_uint(to_acc(x[k]));
        const u32 size = bits[k] & 0x7fffffffu;
        least = min(least, size), most = max(most, size);
        found[k] = (size >> down) + (words[k] < size << up ? 1u : 0u) - apart;
        found[k] |= bits[k] >> __clz(p.sign) & p.sign;
      }
      const bool alike = p.least == -126;  // exponents are those of floats, and so are subnormal numbers
      return (alike || least >> 23 >= static_cast<u32>(p.least + 127)) && most >> down < p.max_code + apart;
    } else {
      return false;
    }
  }

  template <int V> using Chunk = Vec<T, V>;
  template <int V> BARACUDA_D Chunk<V> read(const MapPlace<V, 3>& place) const {
    return place.load(static_cast<const T*>(p.x), 1);
  }
  template <int V> BARACUDA_D void write(const MapPlace<V, 3>& place, const Chunk<V>& x, bool wanted) const {
    u32 words[V];
    draws<V>(seed, offset, place.at[2], words);
    u32 found[V];
    if (!inside(x, words, found)) {
#pragma unroll
      for (int k = 0; k < V; ++k) {
        const A value = to_acc(x[k]);
        found[k] = code(math::abs(value), words[k]) | (math::signbit(value) ? p.sign : 0u);
      }
    }
    Vec<u16, V> wide;
    Vec<u8, V> narrow;
#pragma unroll
    for (int k = 0; k < V; ++k) wide[k] = static_cast<u16>(found[k]), narrow[k] = static_cast<u8>(found[k]);
    if (!wanted) return;
    if (p.bytes == 2) place.store(static_cast<u16*>(p.y), 0, wide);
    else place.store(static_cast<u8*>(p.y), 0, narrow);
  }
};

template <class T, class L> BARACUDA_D void stochastic_cast(const StochasticCastParams& p) {
  map_chunks<L, 3>(p, StochasticCastOp<T>(p));
}

}  // namespace baracuda
