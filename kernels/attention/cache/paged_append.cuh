#pragma once
// paged_append  cache[page, h, cell, :] = new[t, h, :] for keys and values, in words of M; schedules of paged_kv_append*.cu.
//
// A thread moves two words of a token's keys, half the token apart, and the words of its values at the same places. The
// four loads are in flight while the thread looks up the token's cell itself: threads of a warp read the same entries,
// and none waits at a barrier. Tokens without a cell are skipped. Each cell is written by one thread, so their order
// does not matter. I is i32 where words, tokens and table entries can be counted, and offsets kept, below 2^31.
//
// M has Held, what a thread holds of a word; load(p, v, h, at), word `at` of head h of the keys (v = 0) or values; and
// store(p, v, at, held), which writes word `at` of their cache.
// Measurements: docs/design/cache.md.
#include "attention/cache/paged_places.cuh"
#include <baracuda/vector.cuh>

namespace baracuda {

template <class M, class I, class P> BARACUDA_D void paged_append(const P& p) {
  using U = conditional<sizeof(I) == 4, u32, u64>;
  const U item = static_cast<U>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (item >= static_cast<U>(p.items)) return;
  U first;
  const U t = divmod(item, p.by_part, p.part, first);

  typename M::Held word[paged_parts][2];
  U h[paged_parts], column[paged_parts];
#pragma unroll
  for (int k = 0; k < paged_parts; ++k) {
    const U place = first + k * static_cast<U>(p.part);
    h[k] = divmod(place, p.by_row, p.row_words, column[k]);
    if (place >= static_cast<U>(p.token_words)) column[k] = ~U(0);  // an odd token's last column, beyond its end
#pragma unroll
    for (int v = 0; v < 2; ++v) {
      if (column[k] >= static_cast<U>(p.words[v])) continue;
      const i64(&from)[2] = p.from_strides[v];
      const I at = static_cast<I>(t * static_cast<U>(from[0]) + h[k] * static_cast<U>(from[1]) + column[k]);
      word[k][v] = M::load(p, v, h[k], at);
    }
  }

  i64 page, cell;
  u64 place;
  Paged<I, P>{p}.locate(t, page, cell, place);
  if (page < 0) return;
#pragma unroll
  for (int k = 0; k < paged_parts; ++k) {
#pragma unroll
    for (int v = 0; v < 2; ++v) {
      if (column[k] >= static_cast<U>(p.words[v])) continue;
      const i64(&to)[3] = p.to_strides[v];
      const I at = static_cast<I>(static_cast<U>(page) * static_cast<U>(to[0]) + h[k] * static_cast<U>(to[1]) +
                                  static_cast<U>(cell) * static_cast<U>(to[2]) + column[k]);
      M::store(p, v, at, word[k][v]);
    }
  }
}

}  // namespace baracuda
