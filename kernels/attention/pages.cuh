#pragma once
// pages      where the tokens of a sequence are in a paged cache, by a padded or a compressed page table.
//
// Parameters P need the pointers page_table, kv_indices, kv_indptr, kv_last_page_len and what `table_params` of
// ops/attention/page_tables.py fills. The padded table is page_table [batch, max_pages]; where kv_indptr is not null the
// table is compressed, sequence b having pages kv_indices[kv_indptr[b] : kv_indptr[b + 1]].
//
// Nothing is trusted: a slot past a sequence's pages, bounds that lead outside kv_indices, and pages that are not in
// [0, num_pages) all give page -1, and no table is read out of bounds.
#include <baracuda/async_copy.cuh>
#include <baracuda/index.cuh>

namespace baracuda {

// Rows of P::table_strides and bits of P::wide_tables; an op's own tables follow.
enum PagedTable { page_table, kv_indices, kv_indptr, kv_last_page_len, own_tables };

// Element [i, j] of a table of i32 or i64; a one-dimensional table has index j. I is i32 where offsets lie below 2^31.
template <class I = i64, class P>
BARACUDA_D i64 read_table(const P& p, int which, const void* table, i64 j, i64 i = 0) {
  const i64(&n)[2] = p.table_strides[which];
  const I at = static_cast<I>(i) * static_cast<I>(n[0]) + static_cast<I>(j) * static_cast<I>(n[1]);
  return p.wide_tables >> which & 1 ? static_cast<const i64*>(table)[at] : static_cast<const i32*>(table)[at];
}

// The pages of one sequence. I is i32 where tables have less than 2^31 words of 4 bytes.
template <class I> struct PagesIn {
  const void* table;  // from the sequence's first slot on
  I stride;           // from slot to slot, in elements
  i64 count;          // slots that may be read, at least 0
  i64 named;          // slots that the tables claim: any number
  i64 pages;          // of the cache
  bool wide;          // the table is of i64

  template <class P> BARACUDA_D PagesIn(const P& p, I b) : named(p.table_len), pages(p.pages) {
    const bool padded = p.kv_indptr == nullptr;
    const int which = padded ? page_table : kv_indices;
    i64 begin = 0;
    if (!padded) {
      begin = read_table<I>(p, kv_indptr, p.kv_indptr, b);
      const i64 end = read_table<I>(p, kv_indptr, p.kv_indptr, b + 1);
      named = static_cast<i64>(static_cast<u64>(end) - static_cast<u64>(begin));
    }
    count = begin >= 0 && begin < p.table_len ? max<i64>(0, min(named, p.table_len - begin)) : 0;
    stride = static_cast<I>(p.table_strides[which][1]);
    wide = p.wide_tables >> which & 1;
    const I row = static_cast<I>(p.table_strides[which][0]);
    const I first = padded ? b * row : count > 0 ? static_cast<I>(begin) * stride : 0;
    table = static_cast<const char*>(padded ? p.page_table : p.kv_indices) + static_cast<i64>(first) * (wide ? 8 : 4);
  }

  // A slot's page as the table has it, not yet checked: nothing waits for the load before `index` or `exists`.
  struct alignas(8) Entry {
    u32 low, high;
  };
  BARACUDA_D Entry entry(i64 slot) const {
    Entry found{~0u, ~0u};
    if (slot >= 0 && slot < count) {
      const u32* const at = static_cast<const u32*>(table) + static_cast<I>(slot) * (wide ? 2 * stride : stride);
      found.low = at[0];
      if (wide) found.high = at[1];
    }
    return found;
  }
  // Like `entry`, into shared memory by a cp.async of the open group. A slot outside the table leaves it undefined.
  BARACUDA_D void fetch(Entry* to, i64 slot) const {
    if (slot < 0 || slot >= count) return;
    const u32* const at = static_cast<const u32*>(table) + static_cast<I>(slot) * (wide ? 2 * stride : stride);
    if (wide) cp_async<8>(to, at);
    else cp_async<4>(to, at);
  }
  BARACUDA_D i64 index(const Entry& x) const {
    return wide ? static_cast<i64>(static_cast<u64>(x.high) << 32 | x.low) : static_cast<i32>(x.low);
  }
  BARACUDA_D bool exists(i64 page) const { return page >= 0 && page < pages; }
  // Number of tokens of the sequence if its last page has `last`; modulo 2^64.
  template <class P> BARACUDA_D u64 held(const P& p, i64 last) const {
    return (static_cast<u64>(named) - 1) * static_cast<u64>(p.page_size) + static_cast<u64>(last);
  }
  // The page of a slot, or -1.
  BARACUDA_D i64 page(i64 slot) const {
    const i64 found = index(entry(slot));
    return exists(found) ? found : -1;
  }
};

using Pages = PagesIn<i64>;

// The slot and the cell within its page of a position >= 0. I is i32 where positions lie below 2^31.
template <class I, class P> BARACUDA_D i64 slot_of(const P& p, u64 position, i64& cell) {
  if constexpr (sizeof(I) == 4) {
    u32 rest;
    const u32 slot = DivMod{p.by_page[0], p.by_page[1], p.by_page[2]}.divmod(static_cast<u32>(position), rest);
    cell = rest;
    return slot;
  } else {
    u64 rest;
    const u64 slot = divmod(position, static_cast<u64>(p.page_size), rest);
    cell = static_cast<i64>(rest);
    return static_cast<i64>(slot);
  }
}

}  // namespace baracuda
