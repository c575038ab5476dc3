// batch_paged_decode    flash_decoding over paged caches: the same kernels and sums, so dense and paged agree bit for bit.
//
// Caches are [page, head, cell, d] with any outer strides. The length is lengths[b], or what kv_last_page_len makes of the
// table, clamped to [0, max_len] and to the sequence's pages. A cell whose page is not in the cache is not read and seen
// by no query; a checked run is told.
#include <baracuda/pages.cuh>
#include "attention/flash_decoding.cu"
#include "attention/flash_decoding_mma.cu"

namespace baracuda {
namespace decoding {

enum OwnTable { lengths = own_tables };

struct PagedCache : Unscaled {
  static constexpr bool holes = true;
  static constexpr i64 nowhere = numeric<i64>::lowest();
  Pages pages;
  i64 length;
  bool bad;
  const i64 (*places)[split_keys];

  // Heads first: the blocks that read a page's heads, which lie together, run side by side.
  static BARACUDA_D Place place(u32 block, u32 parts, u32 kv_heads) {
    return {block / kv_heads / parts, block % kv_heads, block / kv_heads % parts};
  }
  template <class P> BARACUDA_D PagedCache(const P& p, i64 b) : pages(p, b) {
    const bool given = p.kv_last_page_len == nullptr;
    const i64 last = read_table(p, given ? lengths : kv_last_page_len, given ? p.lengths : p.kv_last_page_len, b);
    const i64 n = given ? last : pages.named == 0 ? 0 : static_cast<i64>(pages.held(p, last));
    length = min(min(p.max_len, pages.count * p.page_size), max<i64>(0, n));
    bad = length != n;
  }
  // The page of a position and the cell in it; below 0 where there is none.
  template <class P> BARACUDA_D i64 find(const P& p, i64 position, i64& cell) const {
    return pages.page(slot_of<i32>(p, position, cell));  // positions lie below 2^31
  }
  template <class P> BARACUDA_D bool has(const P& p, i64 position) const {
    i64 cell;
    return find(p, position, cell) >= 0;
  }

  // A head's keys or values. Of a cache without pages nothing is read; the pointer is only not null.
  template <class C, int WHICH, class P> static BARACUDA_D const C* base(const P& p, i64 kv) {
    const void* const cache = p.pages == 0 ? p.parts : WHICH == 0 ? p.k : p.v;
    return static_cast<const C*>(cache) + kv * (WHICH == 0 ? p.k_stride : p.v_stride)[1];
  }

  // Eight lanes copy a row and look for four between them: lane l finds row r + 4 (l % 4), and hands it on when it is
  // copied. A tile's pages are asked for a tile ahead.
  template <class C> struct Tiles {
    const C *k, *v;        // of the head, from the lane's column on
    const PagedCache& cache;
    i64 k_at, v_at;        // the found row in them
    u32 there;             // lanes whose rows are
    bool missing = false;  // whether a row before the length was not there, in this tile or one before
    Pages::Entry ahead;
    i64 position, cell;    // of the row that is looked for

    template <class P>
    BARACUDA_D Tiles(const P& p, const PagedCache& cache, i64, i64 kv, i64 first, int column, int step)
        : k(base<C, 0>(p, kv) + column), v(base<C, 1>(p, kv) + column), cache(cache),
          position(first + lane_id() % 4 * 4) {
      ask(p);
      next(p, step);
    }
    template <class P> BARACUDA_D void ask(const P& p) { ahead = cache.pages.entry(slot_of<i32>(p, position, cell)); }
    template <class P> BARACUDA_D void next(const P& p, int step) {
      const Pages::Entry now = ahead;
      const i64 now_cell = cell, now_position = position;
      position += step;
      ask(p);
      const i64 page = cache.pages.index(now);
      const bool found = cache.pages.exists(page);
      k_at = found ? page * p.k_stride[0] + now_cell * p.k_stride[2] : 0;
      v_at = found ? page * p.v_stride[0] + now_cell * p.v_stride[2] : 0;
      there = __ballot_sync(full_warp, found);
      if (__any_sync(full_warp, !found && now_position < cache.length)) {
        missing = true;
        if (p.status != nullptr && lane_id() == 0) atomicOr(p.status, 1u);
      }
    }
    BARACUDA_D const C* row(bool values, int n) const {
      return (values ? v : k) + __shfl_sync(full_warp, values ? v_at : k_at, (lane_id() & 24) + n);
    }
    BARACUDA_D bool has(int n) const { return there >> ((lane_id() & 24) + n) & 1; }
  };

  // A thread a cell looks for its page.
  template <class P> BARACUDA_D void locate(const P& p, i64 k0, int keys) {
    __shared__ i64 found[2][split_keys];
    for (int n = threadIdx.x; n < split_keys; n += blockDim.x) {
      i64 cell = 0;
      const i64 page = n < keys ? find(p, k0 + n, cell) : -1;
      found[0][n] = page < 0 ? nowhere : page * p.k_stride[0] + cell * p.k_stride[2];
      found[1][n] = page < 0 ? nowhere : page * p.v_stride[0] + cell * p.v_stride[2];
      if (n < keys && page < 0 && p.status != nullptr) atomicOr(p.status, 1u);
    }
    places = found;
  }

  template <class C, int WHICH> struct Cells {
    const C* start;
    const PagedCache& cache;
    template <class P>
    BARACUDA_D Cells(const P& p, const PagedCache& cache, i64, i64 kv, i64)
        : start(base<C, WHICH>(p, kv)), cache(cache) {}
    // Asked for beyond the split's last cell too.
    template <class P> BARACUDA_D const C* at(const P&, int n) const {
      const i64 place = cache.places[WHICH][n % split_keys];
      return start + (place == nowhere ? 0 : place);
    }
    template <class P> BARACUDA_D const C* next(const P& p, const C*, int n, int column) const {
      return at(p, n) + column;
    }
    BARACUDA_D bool has(int n) const { return cache.places[WHICH][n] != nowhere; }
  };
};

}  // namespace decoding
}  // namespace baracuda
