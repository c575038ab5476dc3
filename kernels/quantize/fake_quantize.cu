// fake_quantize   y = (clamp(round(x / scale) + zero, low, high) - zero) scale, and dx = dy where x is in the range.
//
// Schedule map over blocks: a thread takes 16 bytes of x, twice that where blocks are several, or single elements. Each
// element is made alone, in acc_t<T>. `mask` says of which elements dx is dy.
// BACKWARD: what is made is dx; `divided`: dx is dy / scale, of a quantiser. `whole`: quotients are rounded before they are
// compared with the ends, as integers are.
#include "quantize/fake.cuh"

namespace baracuda {

namespace affine {

template <class T, bool FLAT, bool BACKWARD> struct FakeQuantizeOp {
  using A = acc_t<T>;
  const FakeQuantizeParams& p;
  template <int V> using Chunk = FakeChunk<T, V, Shared<A, 1>>;
  template <int V> BARACUDA_D Chunk<V> read(const MapPlace<V, places>& place) const {
    return Chunk<V>::template read<FLAT, BACKWARD>(p, place);
  }
  template <int V> BARACUDA_D void write(const MapPlace<V, places>& place, const Chunk<V>& chunk, bool wanted) const {
    if (!wanted) return;
    if constexpr (FLAT || V == 1) make(place, chunk, chunk.shared);
    else if (shares(place)) make(place, chunk, chunk.shared);
    else make(place, chunk, Shared<A, V>::template read<false>(p, place));
  }

 private:
  template <int S, int V>
  BARACUDA_D void make(const MapPlace<V, places>& place, const Chunk<V>& chunk, const Shared<A, S>& shared) const {
    const Vec<A, V> v = quotients(widened(chunk.x.elements(place, at_x)), shared.scale);
    Vec<A, V> dy;
    if constexpr (BACKWARD) dy = widened(chunk.dy.elements(place, at_number));
    Vec<A, V> y;
    Vec<bool, V> inside;
#pragma unroll
    for (int k = 0; k < V; ++k) {
      const A first = static_cast<A>(p.low), last = static_cast<A>(p.high);
      const A scale = shared.scale[S == 1 ? 0 : k], given = static_cast<A>(shared.zero[S == 1 ? 0 : k]);
      const A zero = given < first ? first : given > last ? last : given, low = first - zero, high = last - zero;
      const A r = !BACKWARD || p.whole ? math::rint(v[k]) : v[k];
      inside[k] = r >= low && r <= high;
      if constexpr (BACKWARD) {
        y[k] = inside[k] ? (p.divided ? dy[k] / scale : dy[k]) : A(0);
      } else {
        y[k] = (r < low ? low : r > high ? high : r) * scale;
      }
    }
    place.store(static_cast<T*>(BACKWARD ? p.dx : p.y), at_y, cast_vec<T>(y));
    if (!BACKWARD && p.mask != nullptr) place.store(static_cast<bool*>(p.mask), at_number, inside);
  }
};

}  // namespace affine

template <class T, bool BACKWARD> BARACUDA_D void fake_quantize_flat(const FakeQuantizeParams& p) {
  map_chunks<Flat<vec_elems<T>>, affine::places>(p, affine::FakeQuantizeOp<T, true, BACKWARD>{p});
}
template <class T, bool BACKWARD> BARACUDA_D void fake_quantize_strided(const FakeQuantizeParams& p) {
  map_chunks<Strided<vec_elems<T>, 2>, affine::places>(p, affine::FakeQuantizeOp<T, false, BACKWARD>{p});
}
template <class T, bool BACKWARD> BARACUDA_D void fake_quantize_one(const FakeQuantizeParams& p) {
  map_chunks<Strided<1, single_elements>, affine::places>(p, affine::FakeQuantizeOp<T, false, BACKWARD>{p});
}

}  // namespace baracuda
