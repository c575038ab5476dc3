#pragma once
// block_pattern    which tiles of scores an attention kernel visits: all, or those with a set block of a block-sparse
// pattern.
//
// A pattern is a grid of bytes over the scores of a head, one byte for each block of query_block x key_block scores: 0
// says that none of them is seen. P has the fields of schedules/attention/sparse/forward.py: FIELDS. Or blocks differ in
// size (VariableGrid), and P has those of variable.py.
#include "attention/attention.cuh"

namespace baracuda::attention {

// Bits [0, n) of a word, n clamped to [0, 64].
BARACUDA_D u64 low_bits(int n) { return n <= 0 ? 0 : n >= 64 ? ~u64(0) : (u64(1) << n) - 1; }

// The first of the numbers n, n + 1, … < end that passes test(n), or end. The lanes of a warp test 32 at a time; all
// call.
class Search {
  int window = -1;
  u32 found = 0;

 public:
  template <class Test> BARACUDA_D int from(int n, int end, Test test) {
    while (n < end) {
      if (n / 32 != window) {
        window = n / 32;
        const int mine = window * 32 + lane_id();
        found = __ballot_sync(full_warp, mine < end && test(mine));
      }
      const u32 rest = found & (full_warp << n % 32);
      if (rest != 0) return window * 32 + __ffs(rest) - 1;
      n = (window + 1) * 32;
    }
    return end;
  }
  // The first of n, n - 1, … >= begin that passes, or begin - 1. A search goes one way.
  template <class Test> BARACUDA_D int down_from(int n, int begin, Test test) {
    while (n >= begin) {
      if (n / 32 != window) {
        window = n / 32;
        const int mine = window * 32 + lane_id();
        found = __ballot_sync(full_warp, mine >= begin && test(mine));
      }
      const u32 rest = found & (full_warp >> (31 - n % 32));
      if (rest != 0) return window * 32 + 31 - __clz(rest);
      n = window * 32 - 1;
    }
    return begin - 1;
  }
};

// A head without a pattern; compiles to nothing.
template <class P> struct EveryBlock {
  static constexpr bool every = true, may_cut = false, sums_dq = true;
  BARACUDA_D EveryBlock(const P&, u32, u32) {}
  template <int, int> static BARACUDA_D constexpr bool cuts() { return false; }
  template <int, bool> BARACUDA_D u32 hidden(i64, i64) const { return 0; }
  BARACUDA_D bool hides(i64, i64) const { return false; }
  template <int, bool> BARACUDA_D i64 visit(Search&, i64, int, i64 from, i64) const { return from; }
  template <int> BARACUDA_D int visit_down(Search&, i64, int, int from, int) const { return from; }
  template <class Terms> BARACUDA_D void settle(Terms&, i64, int, i64, int) const {}
};

// Which block of a pattern a query or key is in, where all blocks have one size.
template <class P> struct EvenGrid {
  const P& p;
  BARACUDA_D EvenGrid(const P& p, u32) : p(p) {}
  BARACUDA_D u32 head(u32 h) const { return h; }  // the pattern's head of a query head
  BARACUDA_D int row(int q) const { return q / p.query_block; }
  BARACUDA_D int column(int k) const { return k / p.key_block; }
  static BARACUDA_D bool exists(int, int) { return true; }
  template <int QUERIES, int KEYS> BARACUDA_D bool cuts() const {
    return p.query_block % QUERIES != 0 || p.key_block % KEYS != 0;
  }
  // A word with a bit for each of the N keys (or queries) from `start` on: of those in block n up to `last` that of
  // set(n). The lanes of a quad share the work.
  template <int N, class Set> BARACUDA_D u64 keys(int start, int last, Set set) const {
    return bits(p.key_block, start, last, set);
  }
  template <int N, class Set> BARACUDA_D u64 queries(int start, int last, Set set) const {
    return bits(p.query_block, start, last, set);
  }
  template <class Set> static BARACUDA_D u64 bits(int block, int start, int last, Set set) {
    u64 found = 0;
    for (int n = start / block + lane_id() % 4; n <= last; n += 4) {
      if (set(n)) found |= low_bits((n + 1) * block - start) & ~low_bits(n * block - start);
    }
    found |= __shfl_xor_sync(full_warp, found, 1);
    return found | __shfl_xor_sync(full_warp, found, 2);
  }
};

// The same where blocks of a key head differ in size: tables say it, [heads, queries] and [heads, keys]. Queries and keys
// behind the last block are in one more, of which none is set.
template <class P> struct VariableGrid {
  const P& p;
  const u32 kv;
  const i32 *const rows, *const columns;
  BARACUDA_D VariableGrid(const P& p, u32 h)
      : p(p), kv(h / p.group), rows(static_cast<const i32*>(p.row_of) + kv * p.query_len),
        columns(static_cast<const i32*>(p.column_of) + kv * p.key_len) {}
  BARACUDA_D u32 head(u32) const { return kv; }
  BARACUDA_D int row(int q) const { return rows[q]; }
  BARACUDA_D int column(int k) const { return columns[k]; }
  BARACUDA_D bool exists(int row, int column) const { return row < p.pattern_rows && column < p.pattern_columns; }
  template <int, int> static BARACUDA_D constexpr bool cuts() { return true; }
  template <int N, class Set> BARACUDA_D u64 keys(int start, int, Set set) const {
    return bits<N>(columns, start, static_cast<int>(p.key_len), set);
  }
  template <int N, class Set> BARACUDA_D u64 queries(int start, int, Set set) const {
    return bits<N>(rows, start, static_cast<int>(p.query_len), set);
  }
  template <int N, class Set> static BARACUDA_D u64 bits(const i32* blocks, int start, int end, Set set) {
    u64 found = 0;
#pragma unroll 4
    for (int n = lane_id() % 4; n < N && start + n < end; n += 4) {
      if (set(blocks[start + n])) found |= u64(1) << n;
    }
    found |= __shfl_xor_sync(full_warp, found, 1);
    return found | __shfl_xor_sync(full_warp, found, 2);
  }
};

template <class P, class = void> struct GridOf_ {
  using type = EvenGrid<P>;
};
template <class P> struct GridOf_<P, decltype(static_cast<void>(P::column_of))> {
  using type = VariableGrid<P>;
};

// A head's pattern. Queries and keys beyond the last count as the last. MAY_CUT: whether blocks may end within a tile,
// for kernels that do not test it at run time.
template <class P, bool MAY_CUT> class BlockPattern {
 protected:
  const P& p;
  const typename GridOf_<P>::type grid;
  const u8* blocks;

  BARACUDA_D int query_row(i64 q) const {
    return grid.row(min(static_cast<int>(q), static_cast<int>(p.query_len) - 1));
  }
  BARACUDA_D int key_column(i64 k) const {
    return grid.column(min(static_cast<int>(k), static_cast<int>(p.key_len) - 1));
  }
  BARACUDA_D bool set(int row, int column) const {
    return grid.exists(row, column) && blocks[row * p.pattern_stride[2] + column * p.pattern_stride[3]] != 0;
  }

 public:
  // sums_dq: whether blocks of keys add to dq, or another kernel computes it
  static constexpr bool every = false, may_cut = MAY_CUT, sums_dq = false;
  BARACUDA_D BlockPattern(const P& params, u32 b, u32 h)
      : p(params), grid(params, h),
        blocks(static_cast<const u8*>(p.pattern) + b * p.pattern_stride[0] + grid.head(h) * p.pattern_stride[1]) {}

  // Whether a block boundary may cross a tile of QUERIES x KEYS scores.
  template <int QUERIES, int KEYS> BARACUDA_D bool cuts() const { return grid.template cuts<QUERIES, KEYS>(); }
  BARACUDA_D bool hides(i64 q, i64 k) const { return !set(query_row(q), key_column(k)); }
  // Tells score terms what is known of a tile of scores: here nothing.
  template <class Terms> BARACUDA_D void settle(Terms&, i64, int, i64, int) const {}

  // Whether any score of queries [q, q + queries) x keys [k, k + keys) is seen.
  BARACUDA_D bool any(int q, int queries, int k, int keys) const {
    const int right = key_column(k + keys - 1), bottom = query_row(q + queries - 1);
    for (int row = query_row(q); row <= bottom; ++row) {
      for (int column = key_column(k); column <= right; ++column) {
        if (set(row, column)) return true;
      }
    }
    return false;
  }
  // The first tile of N keys from key `from` on of which queries [q, q + queries) see anything; `end` or more where
  // there is none. BY_KEYS: the same with queries and keys exchanged.
  template <int N, bool BY_KEYS> BARACUDA_D i64 visit(Search& search, i64 q, int queries, i64 from, i64 end) const {
    const int mine = static_cast<int>(q), tiles = static_cast<int>((max<i64>(end, 0) + N - 1) / N);
    return N * static_cast<i64>(search.from(static_cast<int>(from / N), tiles, [&](int n) {
             return BY_KEYS ? any(n * N, N, mine, queries) : any(mine, queries, n * N, N);
           }));
  }

  // keys_of: a bit for each of the N <= 64 keys from k on that query q sees; queries_of: for each of the N queries from
  // q on that see key k. The lanes of a quad ask for the same and call together.
  template <int N> BARACUDA_D u64 keys_of(int q, int k) const {
    const int row = query_row(q);
    return grid.template keys<N>(k, key_column(k + N - 1), [&](int column) { return set(row, column); });
  }
  template <int N> BARACUDA_D u64 queries_of(int k, int q) const {
    const int column = key_column(k);
    return grid.template queries<N>(q, query_row(q + N - 1), [&](int row) { return set(row, column); });
  }

  // Bit 4 i + j is set where score (i, j) of this thread is not seen: its rows are thread_row() + 8 i, its columns
  // thread_col() + 16 j of the score tile at query q and key k. BY_KEYS: the tile's rows are keys, else queries.
  template <int R, bool BY_KEYS> BARACUDA_D u32 hidden(i64 q, i64 k) const {
    static_assert(R <= 8, "a word of bits");
    u32 found = 0;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int col = thread_col() + 16 * j, other = BY_KEYS ? query_row(q + col) : key_column(k + col);
#pragma unroll
      for (int i = 0; i < R; ++i) {
        const int row = thread_row() + 8 * i;
        const bool here = BY_KEYS ? set(other, key_column(k + row)) : set(query_row(q + row), other);
        if (!here) found |= 1u << (4 * i + j);
      }
    }
    return found;
  }
};

// Blocks find their work as for dense operands, and skip by a pattern.
template <bool MAY_CUT> struct BlockSparse : Dense {};

template <class Where, class P> struct BlocksOf_ {
  using type = EveryBlock<P>;
};
template <bool MAY_CUT, class P> struct BlocksOf_<BlockSparse<MAY_CUT>, P> {
  using type = BlockPattern<P, MAY_CUT>;
};
template <class Where, class P> using BlocksOf = typename BlocksOf_<Where, P>::type;

}  // namespace baracuda::attention
