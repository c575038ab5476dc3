#pragma once
// latent_list    the keys of mla_sparse: the cells that a query lists, in the list's order, all of which it sees.
//
// An entry is a query. A number of the list is page * page_size + cell, or with a page table the position of the token
// in the query's sequence. Nothing is trusted: what is no cell is left out.
#include "attention/mla/latent.cuh"

namespace baracuda {
namespace mla {

enum ListTable { list_pages, list_sequences, list_lengths };  // rows of list_strides and bits of wide_lists

struct InList {
  static constexpr bool sinks = true;
  template <class P> BARACUDA_D static i64 first(const P& p) { return p.first_query; }
  // Scores are multiplied by the scale later.
  template <class A, class P> BARACUDA_D static A sink(const P& p, int head) {
    if (p.sinks == nullptr) return -numeric<A>::infinity();
    return static_cast<const A*>(p.sinks)[head * p.sink_stride] / static_cast<A>(p.scale);
  }
  template <class P> BARACUDA_D static i64 read(const P& p, int which, const void* table, i64 i, i64 j = 0) {
    const i64 at = i * p.list_strides[which][0] + j * p.list_strides[which][1];
    return p.wide_lists >> which & 1 ? static_cast<const i64*>(table)[at] : static_cast<const i32*>(table)[at];
  }

  template <class P> struct Sequence {
    const i32* list;
    i64 length, sequence;

    BARACUDA_D Sequence(const P& p, i64 t)
        : list(static_cast<const i32*>(p.indices) + t * p.index_stride), length(p.max_len), sequence(0) {
      if (p.lengths != nullptr) length = max<i64>(0, min(length, read(p, list_lengths, p.lengths, t)));
      if (p.batch_indices != nullptr) sequence = read(p, list_sequences, p.batch_indices, t);
      if (sequence < 0 || sequence >= p.batch) length = 0;
    }
    BARACUDA_D i64 seen(const P&, int) const { return length; }
    BARACUDA_D void report(const P&) const {}
  };

  template <class P> struct Cell {
    i32 number;
    BARACUDA_D void look(const P&, const Sequence<P>& of, i64 position) {
      number = position < of.length ? of.list[position] : -1;
    }
    BARACUDA_D i64 find(const P& p, const Sequence<P>& of, bool wanted) const {
      if (!wanted || number < 0) return nowhere;
      i64 cell, page = slot_of<i32>(p, static_cast<u64>(number), cell);
      if (p.page_table != nullptr) {
        page = page < p.table_len ? read(p, list_pages, p.page_table, of.sequence, page) : -1;
      }
      return page >= 0 && page < p.pages ? page * p.cache_stride[0] + cell * p.cache_stride[1] : nowhere;
    }
  };
};

}  // namespace mla
}  // namespace baracuda
