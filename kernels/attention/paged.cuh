#pragma once
// paged    packed queries over keys and values in pages: row sources that look pages up, and the number of keys of a
// sequence.
//
// A sequence has as many keys as its length says, but no more than max_keys, nor than its pages before the first
// missing one. ragged_tiles finds that out, so the kernels that walk the keys meet no missing page.
#include "attention/pages.cuh"
#include "attention/ragged.cuh"

namespace baracuda {
namespace attention {

enum PrefillTable { lengths = own_tables };

// Rows `start`, `start` + 1, … of one sequence; x[page, head, cell, column]. P and Pages must outlive it.
template <class T, class P> struct PagedRows {
  const P& p;
  const Pages& pages;
  const T* first;  // of page 0
  i64 page_stride, cell_stride, start;

  BARACUDA_D const T* row(int r) const {
    i64 cell;
    const i64 page = pages.page(slot_of<i32>(p, static_cast<u64>(start + r), cell));
    return first + max<i64>(page, 0) * page_stride + cell * cell_stride;
  }
  BARACUDA_D PagedRows from(i64 row) const { return {p, pages, first, page_stride, cell_stride, start + row}; }
  BARACUDA_D PagedRows columns(int c) const { return {p, pages, first + c, page_stride, cell_stride, start}; }

  template <int STEP> struct Walk {
    const PagedRows& of;
    int row, column, rows;
    BARACUDA_D const T* next() {
      const int r = row;
      row += STEP;
      return r < rows ? of.row(r) + column : of.first;
    }
  };
  template <int STEP> BARACUDA_D Walk<STEP> walk(int row, int column, int rows) const {
    return {*this, row, column, rows};
  }
};

// Offsets of the keys and values of four tiles of KEYS, in a ring in shared memory, for kernels that take one tile
// after another. Entries of the page table are loaded three tiles ahead into a register of the thread that turns them
// into offsets two tiles ahead, so that neither a load nor a copy is waited for (docs/design/attention-forward.md).
struct KeyPlace {
  i64 key, value;  // elements from the cache's start
};
template <int KEYS> constexpr int ring_size = 4 * KEYS;

// The same rows by way of the ring; its offsets are two words apart. Walks stay within a tile, so that none wraps
// round.
template <class T, class P, int KEYS> struct RingRows {
  PagedRows<T, P> direct;
  const i64* offsets;

  template <int STEP> struct Walk {
    static constexpr bool looks_up = true;
    const i64* offset;
    const T* first;
    BARACUDA_D const T* next() {
      const T* const now = first + *offset;
      offset += 2 * STEP;
      return now;
    }
  };
  struct Cursor {
    const i64* offsets;
    const T* first;
    int start;
    BARACUDA_D void move(int rows) { start += rows; }
    template <int STEP> BARACUDA_D Walk<STEP> down() const {
      return {offsets + 2 * (start & (ring_size<KEYS> - 1)), first};
    }
  };
  BARACUDA_D const T* row(int r) const { return direct.row(r); }
  BARACUDA_D RingRows from(i64 row) const { return {direct.from(row), offsets}; }
  BARACUDA_D RingRows columns(int c) const { return {direct.columns(c), offsets}; }
  BARACUDA_D Cursor cursor(int row, int column) const {
    return {offsets, direct.first + column, static_cast<int>(direct.start) + row};
  }
  template <int STEP> BARACUDA_D Walk<STEP> walk(int row, int column, int) const {
    return cursor(row, column).template down<STEP>();
  }
};

// Empty tables, for a sequence without keys, which may have no row in any table.
struct NoTables {
  const void* page_table = nullptr;
  const void* kv_indices = nullptr;
  const void* kv_indptr = nullptr;
  i64 table_strides[own_tables][2] = {}, table_len = 0, pages = 0;
  u32 wide_tables = 0;
};

template <class P, int KEYS> struct PagedKeys {
  static constexpr bool looks_up = true;
  const P& p;
  const Pages pages;
  u32 kv;
  KeyPlace* ring = nullptr;  // KEYS 0: none, rows are looked up one by one
  Pages::Entry ahead;        // the entry of the row that this thread looks up
  BARACUDA_D PagedKeys(const P& p, const Work& work)
      : p(p), pages(work.key_len > 0 ? Pages(p, work.b) : Pages(NoTables{}, 0)), kv(work.kv) {
    if constexpr (KEYS != 0) {
      __shared__ KeyPlace places[ring_size<KEYS>];
      ring = places;
    }
  }
  template <class T> BARACUDA_D auto keys() const { return rows<T>(p.k, p.stride[1], &ring->key); }
  template <class T> BARACUDA_D auto values() const { return rows<T>(p.v, p.stride[2], &ring->value); }

  // begin at the first tile, `meet` being a barrier of the threads that copy; step with every tile; tiles go in steps
  // of BY.
  template <int BY, class F> BARACUDA_D void begin(int first, const F& meet) {
    if (KEYS == 0) return;
    each_row([&](int r) {
      for (int k0 = first; k0 != first + 2 * BY; k0 += BY) {
        if (k0 >= 0) look(k0 + r, pages.entry(slot(k0 + r)));
      }
    });
    fetch(first + 2 * BY);
    meet();
  }
  template <int BY> BARACUDA_D void step(int k0) {
    const int known = k0 + 2 * BY;
    if (KEYS == 0) return;
    if (known >= 0) each_row([&](int r) { look(known + r, ahead); });
    fetch(known + BY);
  }

 private:
  template <class T> BARACUDA_D auto rows(const void* x, const i64 (&stride)[3], const i64* offsets) const {
    const PagedRows<T, P> direct{p, pages, static_cast<const T*>(x) + kv * stride[1], stride[0], stride[2], 0};
    if constexpr (KEYS == 0) return direct;
    else return RingRows<T, P, KEYS>{direct, offsets};
  }
  template <class F> static BARACUDA_D void each_row(const F& f) {
    if (threadIdx.x < KEYS) f(static_cast<int>(threadIdx.x));
  }
  BARACUDA_D KeyPlace& place(int position) const { return ring[position & (ring_size<KEYS> - 1)]; }
  BARACUDA_D i64 slot(int position) const {
    i64 cell;
    return slot_of<i32>(p, static_cast<u64>(position), cell);
  }
  BARACUDA_D void look(int position, const Pages::Entry& entry) const {
    i64 cell;
    slot_of<i32>(p, static_cast<u64>(position), cell);
    i64 page = pages.index(entry);
    page = pages.exists(page) ? page : 0;
    place(position).key = page * p.stride[1][0] + cell * p.stride[1][2];
    place(position).value = page * p.stride[2][0] + cell * p.stride[2][2];
  }
  BARACUDA_D void fetch(int k0) {
    if (k0 >= 0) each_row([&](int r) { ahead = pages.entry(slot(k0 + r)); });
  }
};

struct Paged : Ragged {
  template <class P, int KEYS> using Keys = PagedKeys<P, KEYS>;
};

// The number of tokens that a sequence claims to hold.
template <class P> BARACUDA_D i64 claimed_keys(const P& p, const Pages& pages, i64 b) {
  if (p.kv_last_page_len == nullptr) return read_table(p, lengths, p.lengths, b);
  if (pages.named == 0) return 0;
  return static_cast<i64>(pages.held(p, read_table(p, kv_last_page_len, p.kv_last_page_len, b)));
}

// Bounds for ragged_tiles: packed queries, and as many keys as the tables hold. Keys are numbered as if sequences were
// packed too.
struct PagedBounds {
  template <class P> static BARACUDA_D void starts(const P& p, int side, i64* starts, i64* scratch) {
    if (side == of_queries) return PackedBounds::starts(p, side, starts, scratch);
    i64* const held = starts + p.batch + 3;
    const i64 warp = threadIdx.x / warp_size;
#pragma unroll 1
    for (i64 b = warp; b < p.batch; b += ragged_threads / warp_size) {
      const Pages pages(p, b);
      const i64 given = claimed_keys(p, pages, b);
      i64 keys = max<i64>(0, min(given, min(p.max_keys, pages.count * p.page_size)));
      const i64 slots = (keys + p.page_size - 1) / p.page_size;
      i64 missing = slots;
#pragma unroll 4
      for (i64 slot = lane_id(); slot < slots; slot += warp_size) {
        if (pages.page(slot) < 0) missing = min(missing, slot);
      }
      keys = min(keys, warp_reduce<Min>(missing) * p.page_size);
      if (lane_id() != 0) continue;
      held[b] = keys;
      if (p.status != nullptr && keys != given) atomicOr(p.status, 1u);
    }
    __syncthreads();
    ragged_starts<Sum>(starts, p.batch, p.total_k, scratch, [&](i64 i) { return i == 0 ? i64(0) : held[i - 1]; });
    __syncthreads();
  }
};

}  // namespace attention
}  // namespace baracuda
