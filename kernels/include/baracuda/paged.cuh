#pragma once
// paged      packed queries over keys and values in pages: a row source that looks pages up, and the keys a sequence has.
//
// A sequence has as many keys as its length says, but no more than max_keys and than its pages before the first that is
// missing. ragged_tiles finds that out, so the kernels that walk the keys meet no missing page.
#include <baracuda/pages.cuh>
#include <baracuda/ragged.cuh>

namespace baracuda {
namespace attention {

enum PrefillTable { lengths = own_tables };

// Rows `start`, `start` + 1, … of one sequence; x[page, head, cell, column]. P and Pages outlive it.
template <class T, class P> struct PagedRows {
  const P& p;
  const Pages& pages;
  const T* first;  // of page 0
  i64 page_stride, cell_stride, start;

  BARACUDA_D const T* at(const Pages::Entry& x, i64 cell) const {
    const i64 page = pages.index(x);
    return first + (pages.exists(page) ? page : 0) * page_stride + cell * cell_stride;
  }
  BARACUDA_D const T* row(int r) const {
    i64 cell;
    const i64 slot = slot_of<i32>(p, static_cast<u64>(start + r), cell);
    return at(pages.entry(slot), cell);
  }
  BARACUDA_D PagedRows from(i64 row) const { return {p, pages, first, page_stride, cell_stride, start + row}; }
  BARACUDA_D PagedRows columns(int c) const { return {p, pages, first + c, page_stride, cell_stride, start}; }

  template <int COUNT> struct Found {
    const T* row[COUNT];
    int n;
    BARACUDA_D const T* next() { return row[n++]; }
  };
  template <int STEP> struct Each {
    const PagedRows& of;
    int row, column, rows;
    BARACUDA_D const T* next() {
      const int r = row;
      row += STEP;
      return r < rows ? of.row(r) + column : of.first;
    }
  };
  template <int STEP, int COUNT> BARACUDA_D auto walk(int row, int column, int rows) const {
    if constexpr (COUNT == 0) {
      return Each<STEP>{*this, row, column, rows};
    } else {  // all entries are asked for before the first is needed
      Pages::Entry entry[COUNT];
      i64 cell[COUNT];
#pragma unroll
      for (int n = 0; n < COUNT; ++n) {
        const int r = min(row + n * STEP, max(rows - 1, 0));
        entry[n] = pages.entry(slot_of<i32>(p, static_cast<u64>(start + r), cell[n]));
      }
      Found<COUNT> found;
      found.n = 0;
#pragma unroll
      for (int n = 0; n < COUNT; ++n) found.row[n] = at(entry[n], cell[n]) + column;
      return found;
    }
  }
};

// What Pages reads of a sequence without keys, which may have no row in any table: nothing.
struct NoTables {
  const void* page_table = nullptr;
  const void* kv_indices = nullptr;
  const void* kv_indptr = nullptr;
  i64 table_strides[own_tables][2] = {}, table_len = 0, pages = 0;
  u32 wide_tables = 0;
};

template <class P> struct PagedKeys {
  const P& p;
  const Pages pages;
  u32 kv;
  BARACUDA_D PagedKeys(const P& p, const Work& work)
      : p(p), pages(work.key_len > 0 ? Pages(p, work.b) : Pages(NoTables{}, 0)), kv(work.kv) {}
  template <class T> BARACUDA_D PagedRows<T, P> rows(const void* x, const i64 (&stride)[3]) const {
    return {p, pages, static_cast<const T*>(x) + kv * stride[1], stride[0], stride[2], 0};
  }
};

struct Paged : Ragged {
  template <class P> using Keys = PagedKeys<P>;
};

// For ragged_tiles: packed queries, and keys as many as the tables hold. A sequence's keys are counted on from those
// before it, as if they were packed too.
struct PagedBounds {
  template <class P> static BARACUDA_D void starts(const P& p, int side, i64* starts, i64* scratch) {
    if (side == of_queries) return PackedBounds::starts(p, side, starts, scratch);
    i64* const held = starts + p.batch + 3;
    const i64 warp = threadIdx.x / warp_size;
#pragma unroll 1
    for (i64 b = warp; b < p.batch; b += ragged_threads / warp_size) {
      const Pages pages(p, b);
      i64 given = 0;
      if (p.kv_last_page_len == nullptr) given = read_table(p, lengths, p.lengths, b);
      else if (pages.named != 0) given = static_cast<i64>(pages.held(p, read_table(p, kv_last_page_len, p.kv_last_page_len, b)));
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
