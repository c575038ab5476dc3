#pragma once
// fake       fake quantisers: y = the number that stands for x after its quantisation, and dx. Schedule map over blocks: a
//            thread takes 16 bytes of x, twice that where blocks are several, or single elements. Each element is made
//            alone, in acc_t<T>.
//
// A quantiser QUANTISER has
//   Params              of its kernels: x, y, dy, dx, and what `Shared` and `make` read
//   Shared<A, S>        what a block shares: scale and zero, of S elements, or one for all
//   make<BACKWARD>      y, or dx, of the quotients v = x / scale of a chunk, and of which elements dx is dy
//   masks               whether that is stored, too
// BACKWARD: what is made is dx.
#include "quantize/codes.cuh"

namespace baracuda::affine {

// What is read of a chunk: x, what its first element shares, and on the way back dy, which has the place of the mask.
template <class T, int V, class Own> struct FakeChunk {
  MapHeld<T, V> x, dy;
  Own shared;
};

template <class QUANTISER, class T, bool FLAT, bool BACKWARD> struct FakeOp {
  using A = acc_t<T>;
  template <int S> using Shared = typename QUANTISER::template Shared<A, S>;
  template <int V> using Chunk = FakeChunk<T, V, Shared<1>>;
  const typename QUANTISER::Params& p;

  template <int V> BARACUDA_D Chunk<V> read(const MapPlace<V, places>& place) const {
    Chunk<V> chunk;
    chunk.x = MapHeld<T, V>::load(static_cast<const T*>(p.x), place, at_x);
    if constexpr (BACKWARD) chunk.dy = MapHeld<T, V>::load(static_cast<const T*>(p.dy), place, at_number);
    chunk.shared = Shared<1>::template read<FLAT>(p, place);
    return chunk;
  }
  template <int V> BARACUDA_D void write(const MapPlace<V, places>& place, const Chunk<V>& chunk, bool wanted) const {
    if (!wanted) return;
    if constexpr (FLAT || V == 1) make(place, chunk, chunk.shared);
    else if (shares(place)) make(place, chunk, chunk.shared);
    else make(place, chunk, Shared<V>::template read<false>(p, place));
  }

 private:
  template <int S, int V>
  BARACUDA_D void make(const MapPlace<V, places>& place, const Chunk<V>& chunk, const Shared<S>& shared) const {
    const Vec<A, V> v = quotients(widened(chunk.x.elements(place, at_x)), shared.scale);
    Vec<A, V> dy, y;
    if constexpr (BACKWARD) dy = widened(chunk.dy.elements(place, at_number));
    Vec<bool, V> inside;
    QUANTISER::template make<BACKWARD>(p, shared, v, dy, y, inside);
    place.store(static_cast<T*>(BACKWARD ? p.dx : p.y), at_y, cast_vec<T>(y));
    if constexpr (QUANTISER::masks && !BACKWARD) {
      if (p.mask != nullptr) place.store(static_cast<bool*>(p.mask), at_number, inside);
    }
  }
};

template <class QUANTISER, class T, bool BACKWARD> BARACUDA_D void fake_flat(const typename QUANTISER::Params& p) {
  map_chunks<Flat<vec_elems<T>>, places>(p, FakeOp<QUANTISER, T, true, BACKWARD>{p});
}
template <class QUANTISER, class T, bool BACKWARD> BARACUDA_D void fake_strided(const typename QUANTISER::Params& p) {
  map_chunks<Strided<vec_elems<T>, 2>, places>(p, FakeOp<QUANTISER, T, false, BACKWARD>{p});
}
template <class QUANTISER, class T, bool BACKWARD> BARACUDA_D void fake_one(const typename QUANTISER::Params& p) {
  map_chunks<Strided<1, single_elements>, places>(p, FakeOp<QUANTISER, T, false, BACKWARD>{p});
}

}  // namespace baracuda::affine
