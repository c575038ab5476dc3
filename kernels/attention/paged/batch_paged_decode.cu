// batch_paged_decode    flash_decoding over paged caches: the same kernels and sums, so dense and paged agree bit for bit.
//
// Caches are [page, head, cell, d] with any outer strides. The length is lengths[b], or follows from kv_last_page_len
// and the table, clamped to [0, max_len] and to the sequence's pages; with a window only the last window_left + 1 cells
// of it count, and splits start at the first of them. A cell whose page is not in the cache is not read, and no query
// sees it; a checked run reports it.
#include "attention/pages.cuh"
#include "attention/decoding/flash_decoding.cu"
#include "attention/decoding/flash_decoding_mma.cu"

namespace baracuda {
namespace decoding {

enum OwnTable { lengths = own_tables };

struct PagedCache : Unscaled {
  static constexpr bool holes = true, capped = true;
  static constexpr i64 nowhere = numeric<i64>::lowest();
  Pages pages;
  i64 first;   // the position of the first cell that counts
  i64 length;  // how many cells count
  bool bad;
  const i64 (*places)[split_keys];

  template <class P> BARACUDA_D PagedCache(const P& p, i64 b) : pages(p, b) {
    const bool given = p.kv_last_page_len == nullptr;
    const i64 last = read_table(p, given ? lengths : kv_last_page_len, given ? p.lengths : p.kv_last_page_len, b);
    const i64 n = given ? last : pages.named == 0 ? 0 : static_cast<i64>(pages.held(p, last));
    const i64 all = min(min(p.max_len, pages.count * p.page_size), max<i64>(0, n));
    bad = all != n;
    first = p.window_left < 0 ? 0 : max<i64>(0, all - 1 - p.window_left);
    length = all - first;
  }
  // The page of cell n of those that count, and the cell within it; below 0 where there is none.
  template <class P> BARACUDA_D i64 find(const P& p, i64 n, i64& cell) const {
    return pages.page(slot_of<i32>(p, first + n, cell));  // positions lie below 2^31
  }
  template <class P> BARACUDA_D bool has(const P& p, i64 n) const {
    i64 cell;
    return find(p, n, cell) >= 0;
  }

  // A head's keys or values. A cache without pages is not read; the pointer must only not be null.
  template <class C, int WHICH, class P> static BARACUDA_D const C* base(const P& p, i64 kv) {
    const void* const cache = p.pages == 0 ? p.parts : WHICH == 0 ? p.k : p.v;
    return static_cast<const C*>(cache) + kv * (WHICH == 0 ? p.k_stride : p.v_stride)[1];
  }

  // Each lane looks up one row of each tile. Page entries come to shared memory by cp.async, in the groups that carry
  // the tiles, AHEAD tiles before their own tile is requested: by then the ring has waited for those groups.
  template <class C, int SUBS, int AHEAD> struct Tiles {
    static constexpr int rows = SUBS * 16, bytes = rows * (16 + AHEAD * 8);
    const C *k, *v;  // of the head, from the lane's column on
    const PagedCache& cache;
    i64 (*const place)[rows];             // offsets of the tile's rows in k and v
    Pages::Entry (*const entries)[rows];  // entries of the next tiles' rows
    const u32 slots;                      // slots that may be read, at most 2^31
    u32 position;                         // of the lane's row of the next tile to look up
    int turn = 0;                         // index into `entries`
    u32 held;                             // bit 4 n: row lane / 8 + 4 n of the tile is requested and exists
    bool missing = false;                 // whether a requested row did not exist, in this tile or one before

    BARACUDA_D Tiles(const PagedCache& cache, void* memory)
        : cache(cache), place(static_cast<i64 (*)[rows]>(memory)),
          entries(reinterpret_cast<Pages::Entry (*)[rows]>(place + 2)),
          slots(static_cast<u32>(min(cache.pages.count, i64(1) << 31))) {}
    template <class P> BARACUDA_D void ask(const P& p, i64 first, int step) {
      position = static_cast<u32>(first) + lane_id() % rows;
      if (p.window_left >= 0) {
        __syncwarp();  // makes this a branch, so that nothing else waits for the length
        position += static_cast<u32>(cache.first);
      }
#pragma unroll
      for (int n = 0; n < AHEAD; n += warp_size / rows) {
        const int tile = n + lane_id() / rows;
        if (tile < AHEAD) ask_one(p, position + tile * step, tile);
      }
    }
    BARACUDA_D void end() {  // no copy outlives its block
      cp_async_commit();
      cp_async_wait<0>();
    }
    template <class P> static BARACUDA_D DivMod by_page(const P& p) {
      return {p.by_page[0], p.by_page[1], p.by_page[2]};
    }
    template <class P> BARACUDA_D void ask_one(const P& p, u32 at, int where) {
      cache.pages.fetch(&entries[where][lane_id() % rows], by_page(p).div(at));
    }
    template <class P> BARACUDA_D void start(const P& p, i64, i64 kv, i64, int column, int ahead) {
      k = base<C, 0>(p, kv) + column;
      v = base<C, 1>(p, kv) + column;
      cp_async_commit();
      cp_async_wait<0>();
      __syncwarp();
      find(p, ahead);
    }
    template <class P> BARACUDA_D void find(const P& p, int ahead) {
      const int mine = lane_id() % rows;
      u32 cell;
      const u32 slot = by_page(p).divmod(position, cell);
      const Pages::Entry page = entries[turn][mine];  // pages are 31 bits: a negative or larger one is out of range
      const u32 beyond = cache.pages.wide ? page.high : 0;
      const bool found = (slot < slots) & (page.low < static_cast<u32>(p.pages)) & (beyond == 0);
      const u32 all = __ballot_sync(full_warp, found),
                asked = ahead < warp_size ? (1u << max(ahead, 0)) - 1 : full_warp;
      __syncwarp();  // all lanes have requested the rows of the tile before, and the entries may be replaced
#pragma unroll
      for (int n = lane_id() / rows; n < 2; n += warp_size / rows) {
        const auto& stride = n == 0 ? p.k_stride : p.v_stride;
        place[n][mine] = found ? page.low * stride[0] + cell * stride[2] : 0;
      }
      held = (all & asked) >> lane_id() / 8;
      if (asked & ~all) {
        missing = true;
        if (p.status != nullptr && lane_id() == 0) atomicOr(p.status, 1u);
      }
      __syncwarp();
    }
    template <class P> BARACUDA_D void next(const P& p, int step, int ahead) {
      if (lane_id() < rows) ask_one(p, position + AHEAD * step, turn);
      position += step;
      turn = turn + 1 == AHEAD ? 0 : turn + 1;
      find(p, ahead);
    }
    BARACUDA_D const C* row(bool values, int n) const {
      return (values ? v : k) + place[values][n * 4 + lane_id() / 8];
    }
    BARACUDA_D bool has(int n, int) const { return held >> 4 * n & 1; }
  };

  // One thread for each cell looks up its page.
  template <class A, class P> BARACUDA_D void locate(const P& p, i64 k0, int keys) {
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
    // Also called beyond the split's last cell.
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
