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
#include "attention/pages.cuh"
#include <baracuda/vector.cuh>

namespace baracuda {

enum OwnTable { cache_offsets = own_tables, token_indptr, slot_mapping };

template <class I, class P> struct Paged {
  using U = conditional<sizeof(I) == 4, u32, u64>;
  const P& p;

  // The page and cell of token t; page < 0 where it has none. Sums wrap modulo 2^64, as in the reference.
  BARACUDA_D void locate(U t, i64& page, i64& cell) const {
    page = -1, cell = 0;
    if (p.slot_mapping != nullptr) {
      const i64 slot = read_table<I>(p, slot_mapping, p.slot_mapping, static_cast<i64>(t));
      if (slot < 0) return;  // padding
      if (static_cast<u64>(slot) < static_cast<u64>(p.reach)) page = slot_of<I>(p, static_cast<u64>(slot), cell);
      else if (p.status != nullptr) atomicOr(p.status, 1u);
      return;
    }
    if (p.batch == 0) return;
    I b;
    u64 place, count;
    if (p.token_indptr == nullptr) {
      U row;
      b = static_cast<I>(divmod(t, p.by_new, p.new_len, row));
      place = row, count = static_cast<u64>(p.new_len);
    } else {
      I high = static_cast<I>(p.batch);
      b = 0;
      while (high - b > 1) {
        const I middle = (b + high) / 2;
        if (read_table<I>(p, token_indptr, p.token_indptr, middle) <= static_cast<i64>(t)) b = middle;
        else high = middle;
      }
      const i64 first = read_table<I>(p, token_indptr, p.token_indptr, b);
      const i64 end = read_table<I>(p, token_indptr, p.token_indptr, b + 1);
      if (static_cast<i64>(t) < first || static_cast<i64>(t) >= end) return;  // padding
      place = t - static_cast<u64>(first), count = static_cast<u64>(end) - static_cast<u64>(first);
    }
    if (p.cache_offsets != nullptr) place += static_cast<u64>(read_table<I>(p, cache_offsets, p.cache_offsets, b));
    if (p.kv_indptr == nullptr) {
      if (place < static_cast<u64>(p.reach)) {  // then every row of the table has the slot
        const i64 found = read_table<I>(p, page_table, p.page_table, slot_of<I>(p, place, cell), b);
        if (found >= 0 && found < p.pages) page = found;
      }
    } else {
      const PagesIn<I> row(p, b);
      if (p.kv_last_page_len != nullptr) {
        place += row.held(p, read_table<I>(p, kv_last_page_len, p.kv_last_page_len, b)) - count;
      }
      if (place < static_cast<u64>(p.reach)) page = row.page(slot_of<I>(p, place, cell));
    }
    if (page < 0 && p.status != nullptr) atomicOr(p.status, 1u);
  }
};

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
  Paged<I, P>{p}.locate(t, page, cell);
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
