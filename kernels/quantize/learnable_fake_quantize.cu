// learnable_fake_quantize  y = clamp(round(x / scale), low, high) scale with learned scales and zero points, and
//                          dx = dy where the integer of x is in the range.
//
// Schedule map over blocks: a thread takes 16 bytes of x, twice that where blocks are several, or single elements. Each
// element is made alone, in acc_t<T>.
// BACKWARD: what is made is dx.
#include "quantize/fake.cuh"
#include "quantize/learnable.cuh"

namespace baracuda {

namespace affine {

template <class T, bool FLAT, bool BACKWARD> struct LearnableOp {
  using A = acc_t<T>;
  const LearnableFakeQuantizeParams& p;
  template <int V> using Chunk = FakeChunk<T, V, LearnedChunk<A, 1>>;
  template <int V> BARACUDA_D Chunk<V> read(const MapPlace<V, places>& place) const {
    return Chunk<V>::template read<FLAT, BACKWARD>(p, place);
  }
  template <int V> BARACUDA_D void write(const MapPlace<V, places>& place, const Chunk<V>& chunk, bool wanted) const {
    if (!wanted) return;
    if constexpr (FLAT || V == 1) make(place, chunk, chunk.shared);
    else if (shares(place)) make(place, chunk, chunk.shared);
    else make(place, chunk, LearnedChunk<A, V>::template read<false>(p, place));
  }

 private:
  template <int S, int V>
  BARACUDA_D void make(const MapPlace<V, places>& place, const Chunk<V>& chunk,
                       const LearnedChunk<A, S>& shared) const {
    const Vec<A, V> v = quotients(widened(chunk.x.elements(place, at_x)), shared.scale);
    Vec<A, V> dy;
    if constexpr (BACKWARD) dy = widened(chunk.dy.elements(place, at_number));
    Vec<A, V> y;
#pragma unroll
    for (int k = 0; k < V; ++k) {
      const Learned<A> step(p, shared.scale[S == 1 ? 0 : k], shared.zero[S == 1 ? 0 : k]);
      if constexpr (BACKWARD) y[k] = step.inside(v[k]) ? dy[k] : A(0);
      else y[k] = step.held(v[k]) * step.scale;
    }
    place.store(static_cast<T*>(BACKWARD ? p.dx : p.y), at_y, cast_vec<T>(y));
  }
};

}  // namespace affine

template <class T, bool BACKWARD> BARACUDA_D void learnable_flat(const LearnableFakeQuantizeParams& p) {
  map_chunks<Flat<vec_elems<T>>, affine::places>(p, affine::LearnableOp<T, true, BACKWARD>{p});
}
template <class T, bool BACKWARD> BARACUDA_D void learnable_strided(const LearnableFakeQuantizeParams& p) {
  map_chunks<Strided<vec_elems<T>, 2>, affine::places>(p, affine::LearnableOp<T, false, BACKWARD>{p});
}
template <class T, bool BACKWARD> BARACUDA_D void learnable_one(const LearnableFakeQuantizeParams& p) {
  map_chunks<Strided<1, single_elements>, affine::places>(p, affine::LearnableOp<T, false, BACKWARD>{p});
}

}  // namespace baracuda
