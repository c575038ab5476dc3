#pragma once
// paged_places   where new tokens go in a paged cache, by the tables of paged_kv_append's page: for kernels that append.
#include "attention/pages.cuh"

namespace baracuda {

enum OwnTable { cache_offsets = own_tables, token_indptr, slot_mapping };

// Whether tokens may have slots: cells of the whole cache, in place of tables.
template <class P, class = void> constexpr bool has_slots = false;
template <class P> constexpr bool has_slots<P, decltype(static_cast<void>(P::slot_mapping))> = true;

template <class I, class P> struct Paged {
  using U = conditional<sizeof(I) == 4, u32, u64>;
  const P& p;

  // The page and cell of token t, and its position in its sequence, unless a slot says where it goes; page < 0 where it
  // has none. Sums wrap modulo 2^64, as in the reference.
  BARACUDA_D void locate(U t, i64& page, i64& cell, u64& place) const {
    page = -1, cell = 0;
    if constexpr (has_slots<P>) {
      if (p.slot_mapping != nullptr) {
        const i64 slot = read_table<I>(p, slot_mapping, p.slot_mapping, static_cast<i64>(t));
        if (slot < 0) return;  // padding
        if (static_cast<u64>(slot) < static_cast<u64>(p.reach)) page = slot_of<I>(p, static_cast<u64>(slot), cell);
        else if (p.status != nullptr) atomicOr(p.status, 1u);
        return;
      }
    }
    if (p.batch == 0) return;
    I b;
    u64 count;
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

}  // namespace baracuda
