#pragma once
// selected   attention of each query to blocks of keys of its own choice: where a query's blocks are found, the walk over
//            them, and the queries that chose a block.
//
// The lists of a problem are put in order once (block_select_lists.cu): ascending, each block once, without those that
// the query cannot see, `no_block` behind the last. So no result depends on the order in which a caller gives them.
#include "attention/attention.cuh"
#include <baracuda/async_copy.cuh>
#include <baracuda/mma_tile.cuh>

namespace baracuda {
namespace attention {

constexpr i32 no_block = 0x7fffffff;
constexpr int every_head = 0x40000000;  // as the rows of a Choice: all heads that share the key head

// What the backward needs of a row of scores: what its scores are lowered by, and delta = dy y; and the row's query.
template <class A> struct RowState {
  A base, delta;
  i32 query, unused;
};

// The keys that a query sees: those of its blocks up to the last that causality leaves, from the first on.
struct BlockWalk {
  const i32* block;
  int blocks_left, size, end;  // end: of the keys that the query sees
  int at = 0, past = 0;        // the keys here, up to the block's last

  BARACUDA_D bool enter() {
    if (blocks_left == 0 || *block == no_block) return false;
    at = *block * size, past = min(at + size, end);
    ++block, --blocks_left;
    return true;
  }
  BARACUDA_D bool step(int keys) {
    at += keys;
    return at < past || enter();
  }
  BARACUDA_D int left() const { return past - at; }
};

// End of the keys that a query sees; may be <= 0.
template <class P> BARACUDA_D int end_of_keys(const P& p, i64 query) {
  return static_cast<int>(p.causal ? min<i64>(p.key_len, query + p.shift + 1) : p.key_len);
}

// One query of one key head, and up to ROWS of the query heads that share it.
struct Choice {
  u32 b, kv;
  int query, head, heads;  // the first of the query heads, and their number
  i64 list;                // index of the query's list

  // The last queries first, as the first have fewer keys to see.
  template <int ROWS, class P> static BARACUDA_D Choice of(const P& p, i64 unit) {
    const i64 tiles = (p.group + ROWS - 1) / ROWS, row = unit / tiles, owner = row / p.query_len;
    const int query = static_cast<int>(p.query_len - 1 - row % p.query_len),
              first = static_cast<int>(unit % tiles) * ROWS;
    const u32 b = static_cast<u32>(owner / p.kv_heads), kv = static_cast<u32>(owner % p.kv_heads);
    return {
        b, kv, query, static_cast<int>(kv) * p.group + first, min(ROWS, p.group - first), owner * p.query_len + query};
  }
  template <class P> BARACUDA_D BlockWalk walk(const P& p) const {
    return {static_cast<const i32*>(p.lists) + list * p.selected, p.selected, p.block_size, end_of_keys(p, query)};
  }
  // Row 0 in q, dy, y or dq, and in what is kept of rows [batch, heads, queries].
  template <class T> BARACUDA_D T* row(const void* x, const i64 (&stride)[3]) const {
    return const_cast<T*>(static_cast<const T*>(x)) + b * stride[0] + head * stride[1] + query * stride[2];
  }
  template <class P> BARACUDA_D i64 state(const P& p) const {
    return (static_cast<i64>(b) * p.num_heads + head) * p.query_len + query;
  }
};

// A part of the queries that chose a block: `count` of them from `first` on; `slot`: where their sums are kept until those
// of the block's other parts are added, -1 where there are none.
struct BlockQueries {
  int block, count;
  const i32* first;
  i64 slot;

  // Unit `unit` of a key head: first p.max_parts parts of blocks that have several, then all blocks; count < 0: none.
  template <class P> static BARACUDA_D BlockQueries of(const P& p, i64 owner, int unit) {
    const i32* const begin = static_cast<const i32*>(p.begins) + owner * (p.key_blocks + 1);
    const i32* const slots = static_cast<const i32*>(p.slots) + owner * (p.key_blocks + 1);
    const i32* const order = static_cast<const i32*>(p.order) + owner * p.query_len * p.selected;
    const int parts = static_cast<int>(p.max_parts), chunk = static_cast<int>(p.part);
    if (unit >= parts) {
      const int block = unit - parts;
      const int count = slots[block + 1] > slots[block] ? -1 : begin[block + 1] - begin[block];
      return {block, count, order + begin[block], -1};
    }
    int low = 0, high = static_cast<int>(p.key_blocks);
    if (unit >= slots[high]) return {0, -1, order, -1};
    while (high - low > 1) {  // slots[low] <= unit < slots[high]
      const int middle = (low + high) / 2;
      if (slots[middle] <= unit) low = middle;
      else high = middle;
    }
    const int from = begin[low] + (unit - slots[low]) * chunk;
    return {low, min(chunk, begin[low + 1] - from), order + from, owner * p.max_parts + unit};
  }
};

// The sums of a part, in floats: for each key of its block d_k columns of dk and then those of dv.
template <class A, class P> BARACUDA_D A* sums_of(const P& p, i64 slot, int key) {
  return static_cast<A*>(p.sums) + (slot * p.block_size + key) * (p.d_k + p.d_v);
}

// tile[r][c] = row(r)[c] for r < rows and c < cols, zeros elsewhere in ROWS x D, as tile::copy; rows stand anywhere.
template <int ROWS, int D, int THREADS, class T, class Row>
BARACUDA_D void copy_rows(T* tile, const Row& row, int rows, int cols, bool wide) {
  static_assert(ROWS * D / 8 % THREADS == 0, "every thread copies as many pieces");
  if (wide) {
#pragma unroll 4
    for (int n = threadIdx.x; n < ROWS * D / 8; n += THREADS) {
      const int r = n / (D / 8), c = n % (D / 8);
      const bool there = r < rows && 8 * c < cols;
      cp_async_16(tile + tile::at<D>(r, c), row(there ? r : 0) + (there ? 8 * c : 0), there);
    }
  } else {
#pragma unroll 1
    for (int n = threadIdx.x; n < ROWS * D; n += THREADS) {
      const int r = n / D, c = n % D;
      tile[tile::at<D>(r, c / 8) + c % 8] = r < rows && c < cols ? row(r)[c] : T(0.0f);
    }
  }
}
template <int ROWS, int D, int THREADS, class T>
BARACUDA_D void copy_rows(T* tile, const T* from, i64 stride, int rows, int cols, bool wide) {
  copy_rows<ROWS, D, THREADS>(tile, [&](int r) { return from + r * stride; }, rows, cols, wide);
}

}  // namespace attention
}  // namespace baracuda
