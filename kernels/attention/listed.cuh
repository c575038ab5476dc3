#pragma once
// listed     cells of a paged cache by number: page * page_size + cell, or with a page table the position of a token in
//            its sequence.
//
// Parameters P have what `lists.py` of ops/attention/mla fills. Nothing is trusted: what is no cell has page -1.
#include "attention/pages.cuh"

namespace baracuda {

enum List { list_pages, list_sequences, own_lists };  // rows of list_strides and bits of wide_lists; an op's own follow

// Element [i, j] of a table of i32 or i64.
template <class P> BARACUDA_D i64 read_list(const P& p, int which, const void* table, i64 i, i64 j = 0) {
  const i64 at = i * p.list_strides[which][0] + j * p.list_strides[which][1];
  return p.wide_lists >> which & 1 ? static_cast<const i64*>(table)[at] : static_cast<const i32*>(table)[at];
}

// The sequence of a query: 0 without a page table, -1 where it is none.
template <class P> BARACUDA_D i64 sequence_of(const P& p, i64 query) {
  if (p.batch_indices == nullptr) return 0;
  const i64 sequence = read_list(p, list_sequences, p.batch_indices, query);
  return sequence >= 0 && sequence < p.batch ? sequence : -1;
}

// The page and the cell of a number >= 0 of a sequence >= 0.
template <class P> BARACUDA_D i64 page_of(const P& p, i64 sequence, i32 number, i64& cell) {
  i64 page = slot_of<i32>(p, static_cast<u64>(number), cell);
  if (p.page_table != nullptr) {
    page = page < p.table_len ? read_list(p, list_pages, p.page_table, sequence, page) : -1;
  }
  return page >= 0 && page < p.pages ? page : -1;
}

}  // namespace baracuda
