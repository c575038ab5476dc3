// learnable_fake_quantize  y = clamp(round(x / scale), low, high) scale with learned scales and zero points, and
//                          dx = dy where the integer of x is in the range.
//
// Schedule map over blocks: a thread takes 16 bytes of x, or single elements. Each element is made alone, in acc_t<T>.
// BACKWARD: what is made is dx.
#include "quantize/fake.cuh"
#include "quantize/learnable.cuh"

namespace baracuda {

namespace affine {

template <class T, bool FLAT, bool BACKWARD> struct LearnableOp {
  using A = acc_t<T>;
  const LearnableFakeQuantizeParams& p;
  template <int V> using Chunk = FakeChunk<T, V>;
  template <int V> BARACUDA_D Chunk<V> read(const MapPlace<V, places>& place) const {
    return Chunk<V>::template read<BACKWARD>(p, place);
  }
  template <int V> BARACUDA_D void write(const MapPlace<V, places>& place, const Chunk<V>& chunk, bool wanted) const {
    if (!wanted) return;
    const u32 still = place.splat >> at_scale & place.splat >> at_zero & 1;
    if constexpr (FLAT || V == 1) make<1>(place, chunk);
    else if (still) make<1>(place, chunk);  // all of a chunk share a scale, whose inverse is made once
    else make<V>(place, chunk);
  }

 private:
  template <int S, int V> BARACUDA_D void make(const MapPlace<V, places>& place, const Chunk<V>& chunk) const {
    const auto shared = LearnedChunk<A, S>::template read<FLAT>(p, place);
    const Vec<A, V> v = quotients(to_acc(chunk.x), shared.scale);
    Vec<A, V> y;
#pragma unroll
    for (int k = 0; k < V; ++k) {
      const Learned<A> step(p, shared.scale[S == 1 ? 0 : k], shared.zero[S == 1 ? 0 : k]);
      if constexpr (BACKWARD) y[k] = step.inside(v[k]) ? to_acc(chunk.dy[k]) : A(0);
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
  map_chunks<Strided<vec_elems<T>, 1>, affine::places>(p, affine::LearnableOp<T, false, BACKWARD>{p});
}
template <class T, bool BACKWARD> BARACUDA_D void learnable_one(const LearnableFakeQuantizeParams& p) {
  map_chunks<affine::Single, affine::places>(p, affine::LearnableOp<T, false, BACKWARD>{p});
}

}  // namespace baracuda
