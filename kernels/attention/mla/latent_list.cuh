#pragma once
// latent_list    the keys of mla_sparse: the cells that a query lists, in the list's order, all of which it sees.
//
// An entry is a query. What numbers of a list are says listed.cuh; what is no cell is left out.
#include "attention/listed.cuh"
#include "attention/mla/latent.cuh"

namespace baracuda {
namespace mla {

enum ListTable { list_lengths = own_lists };

template <class R> struct InList {
  using Record = R;
  static constexpr bool sinks = true;
  template <class P> BARACUDA_D static i64 first(const P& p) { return p.first_query; }
  // Scores are multiplied by the scale later.
  template <class A, class P> BARACUDA_D static A sink(const P& p, int head) {
    if (p.sinks == nullptr) return -numeric<A>::infinity();
    return static_cast<const A*>(p.sinks)[head * p.sink_stride] / static_cast<A>(p.scale);
  }

  template <class P> struct Sequence {
    const i32* list;
    i64 length, sequence;

    BARACUDA_D Sequence(const P& p, i64 t)
        : list(static_cast<const i32*>(p.indices) + t * p.index_stride), length(p.max_len),
          sequence(sequence_of(p, t)) {
      if (p.lengths != nullptr) length = max<i64>(0, min(length, read_list(p, list_lengths, p.lengths, t)));
      if (sequence < 0) length = 0;
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
      i64 cell;
      const i64 page = page_of(p, of.sequence, number, cell);
      return page >= 0 ? page * p.cache_stride[0] + cell * p.cache_stride[1] : nowhere;
    }
  };
};

}  // namespace mla
}  // namespace baracuda
