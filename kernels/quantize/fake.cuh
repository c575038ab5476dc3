#pragma once
// fake       what fake quantisers read of a chunk: x, and on the way back dy, which has the place of the number beside it.
#include "quantize/affine.cuh"

namespace baracuda::affine {

template <class T, int V> struct FakeChunk {
  Vec<T, V> x, dy;
  template <bool BACKWARD, class P> static BARACUDA_D FakeChunk read(const P& p, const MapPlace<V, places>& place) {
    FakeChunk chunk;
    chunk.x = place.load(static_cast<const T*>(p.x), at_x);
    if constexpr (BACKWARD) chunk.dy = place.load(static_cast<const T*>(p.dy), at_number);
    return chunk;
  }
};

}  // namespace baracuda::affine
