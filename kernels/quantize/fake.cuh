#pragma once
// fake       what fake quantisers read of a chunk: x, what its first element shares, and on the way back dy, which has the
//            place of the number beside it.
#include "quantize/codes.cuh"

namespace baracuda::affine {

template <class T, int V, class Own> struct FakeChunk {
  MapHeld<T, V> x, dy;
  Own shared;
  template <bool FLAT, bool BACKWARD, class P>
  static BARACUDA_D FakeChunk read(const P& p, const MapPlace<V, places>& place) {
    FakeChunk chunk;
    chunk.x = MapHeld<T, V>::load(static_cast<const T*>(p.x), place, at_x);
    if constexpr (BACKWARD) chunk.dy = MapHeld<T, V>::load(static_cast<const T*>(p.dy), place, at_number);
    chunk.shared = Own::template read<FLAT>(p, place);
    return chunk;
  }
};

}  // namespace baracuda::affine
