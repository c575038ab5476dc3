// dropout    y = scale x + shift where the uniform of x's draw is at least p, else fill; schedule map.
//
// Draw n is element n of the Philox stream (philox.cuh). n is the offset in an operand without memory, whose strides
// are row-major over the axes that have draws of their own and 0 along the others; so a chunk of V elements has either
// V draws one after the other, the first a multiple of V, or one draw.
#include <baracuda/math.cuh>
#include <baracuda/map.cuh>
#include "random/draws.cuh"

namespace baracuda {

template <class T> struct DropoutOp {
  using A = acc_t<T>;
  const DropoutParams& p;
  u64 seed, offset;
  A scale, shift;
  T fill;

  BARACUDA_D explicit DropoutOp(const DropoutParams& p)
      : p(p), seed(p.seed()), offset(p.offset()), scale(p.scale), shift(p.shift),
        fill(cast<T>(static_cast<A>(p.fill))) {}

  template <int V> using Chunk = Vec<T, V>;
  template <int V> BARACUDA_D Chunk<V> read(const MapPlace<V, 4>& place) const {
    return place.load(static_cast<const T*>(p.x), 1);
  }
  template <int V> BARACUDA_D void write(const MapPlace<V, 4>& place, const Chunk<V>& x, bool wanted) const {
    const u64 n = place.at[3];
    const bool shared = V > 1 && (place.splat >> 3 & 1);
    u32 words[V];
    if (shared) {
      const u32 word = philox_bits(seed, offset, n);
#pragma unroll
      for (int k = 0; k < V; ++k) words[k] = word;
    } else {
      draws<V>(seed, offset, n, words);
    }
    Vec<A, V> kept;
#pragma unroll
    for (int k = 0; k < V; ++k) kept[k] = math::fma(scale, to_acc(x[k]), shift);
    Vec<T, V> y = cast_vec<T>(kept);
    Vec<bool, V> mask;
#pragma unroll
    for (int k = 0; k < V; ++k) {
      mask[k] = words[k] >> 8 >= p.keep_from;
      if (!mask[k]) y[k] = fill;
    }
    if (!wanted) return;
    place.store(static_cast<T*>(p.y), 0, y);
    if (p.mask != nullptr) place.store(static_cast<bool*>(p.mask), 2, mask);
  }
};

template <class T, class L> BARACUDA_D void dropout(const DropoutParams& p) { map_chunks<L, 4>(p, DropoutOp<T>(p)); }

}  // namespace baracuda
