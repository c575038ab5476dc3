#pragma once
// latent_pages   the keys of mla_decode: the cells of a sequence in a paged cache, in order. Query i of n sees the cells
// before length - n + i + 1.
#include "attention/mla/latent.cuh"

namespace baracuda {
namespace mla {

enum LatentTable { lengths = own_tables };

template <class R> struct InPages {
  using Record = R;
  static constexpr bool sinks = false;
  template <class P> BARACUDA_D static i64 first(const P&) { return 0; }
  template <class A, class P> BARACUDA_D static A sink(const P&, int) { return -numeric<A>::infinity(); }

  template <class P> struct Sequence {
    Pages pages;
    i64 length;
    bool bad;  // whether the given length had to be clamped

    BARACUDA_D Sequence(const P& p, i64 b) : pages(p, b) {
      const bool given = p.kv_last_page_len == nullptr;
      const i64 last = read_table(p, given ? lengths : kv_last_page_len, given ? p.lengths : p.kv_last_page_len, b);
      const i64 n = given ? last : pages.named == 0 ? 0 : static_cast<i64>(pages.held(p, last));
      length = min(min(p.max_len, pages.count * p.page_size), max<i64>(0, n));
      bad = length != n;
    }
    BARACUDA_D i64 seen(const P& p, int i) const { return max<i64>(0, length - p.queries + i + 1); }
    BARACUDA_D void report(const P& p) const {
      if (bad && p.status != nullptr) atomicOr(p.status, 1u);
    }
  };

  template <class P> struct Cell {
    Pages::Entry entry;  // of the table, not checked yet
    i64 cell;
    BARACUDA_D void look(const P& p, const Sequence<P>& of, i64 position) {
      const i64 slot = slot_of<i32>(p, static_cast<u64>(position), cell);  // positions lie below 2^31
      entry = of.pages.entry(position < of.length ? slot : -1);
    }
    // A missing page is reported by a checked run.
    BARACUDA_D i64 find(const P& p, const Sequence<P>& of, bool wanted) const {
      const i64 page = of.pages.index(entry);
      if (wanted && of.pages.exists(page)) return page * p.cache_stride[0] + cell * p.cache_stride[1];
      if (wanted && p.status != nullptr) atomicOr(p.status, 1u);
      return nowhere;
    }
  };
};

}  // namespace mla
}  // namespace baracuda
