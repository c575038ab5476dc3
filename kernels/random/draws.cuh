#pragma once
// draws      words of the Philox stream for a chunk of a map that draws one for each element, or one for several.
#include <baracuda/philox.cuh>

namespace baracuda {

// The words of draws n … n + V - 1, n a multiple of V.
template <int V> BARACUDA_D void draws(u64 seed, u64 offset, u64 n, u32 (&words)[V]) {
  if constexpr (V < 4) {
    const Philox4 four = philox_block(seed, offset, n >> 2);
#pragma unroll
    for (int k = 0; k < V; ++k) words[k] = philox_word(four, static_cast<u32>((n + k) & 3));
  } else {
    Philox4 four[V / 4];
    philox_blocks<V / 4>(seed, offset, n >> 2, four);
#pragma unroll
    for (int k = 0; k < V; ++k) words[k] = philox_word(four[k / 4], k % 4);
  }
}

}  // namespace baracuda
