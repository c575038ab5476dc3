#pragma once
// groups     rows cut into groups by bounds that stand on the device, and which tile of which group a block works on.
//
// P has rows, groups, offsets (a bound each `offset_stride` elements, int64 where wide_offsets, else int32) and
// from_zero: the first group begins at row 0, and offsets[g] is where group g ends; otherwise offsets[g] is where group
// g begins and offsets[g + 1] where it ends. Bounds are clamped to [0, rows] and to the largest bound before them, so
// whatever they hold, groups are disjoint and in order. Rows before the first and after the last are in no group.
#include <baracuda/index.cuh>
#include <baracuda/reduce.cuh>

namespace baracuda {

// Bound i = 0 … groups, clamped to the rows but not yet to the bounds before it.
template <class P> BARACUDA_D i64 group_bound(const P& p, i64 i) {
  if (p.from_zero && i == 0) return 0;
  const i64 at = (i - p.from_zero) * p.offset_stride;
  const i64 bound = p.wide_offsets ? static_cast<const i64*>(p.offsets)[at] : static_cast<const i32*>(p.offsets)[at];
  return max<i64>(0, min(p.rows, bound));
}

// Rows of one group. All THREADS of the block call.
template <int THREADS> struct GroupRows {
  i64 begin, end;
  template <class P> BARACUDA_D GroupRows(const P& p, i64 group) {
    i64 before = 0;
    for (i64 i = threadIdx.x; i <= group; i += THREADS) before = max(before, group_bound(p, i));
    begin = block_reduce<Max, THREADS>(before);
    end = max(begin, group_bound(p, group + 1));
  }
};

// A tile of TILE_M x TILE_N places of one group's rows; group -1: of rows in no group.
struct GroupTile {
  i64 group, m0, n0, end;  // end: the group's last row, and one
};

// The tiles of all groups, numbered along the rows of a group, then along n, then along the groups, so that blocks next
// to each other share a part of the group's right matrix. The rows before the first group and after the last are two
// pieces more. A block takes the numbers blockIdx.x, blockIdx.x + gridDim.x, …; it holds a table of THREADS pieces at a
// time. Everything stands in shared memory, as the registers of a product have no room for it. All THREADS call.
template <int TILE_M, int TILE_N, int THREADS> class GroupTiles {
  struct Table {
    i64 ends[THREADS + 1], tiles[THREADS + 1];  // of the pieces up to each, the first entry before them all
    i64 scratch[THREADS / warp_size];
    i64 base, number;  // the first piece of the table; the next tile
    GroupTile tile;
  };
  static BARACUDA_D Table& table() {
    __shared__ Table t;
    return t;
  }

  // The table of the next pieces.
  template <class P> static BARACUDA_D void next(const P& p) {
    Table& t = table();
    const int thread = static_cast<int>(threadIdx.x);
    const bool first = t.base < 0;
    const i64 rows_done = first ? 0 : t.ends[THREADS], tiles_done = first ? 0 : t.tiles[THREADS];
    const i64 base = t.base + THREADS, piece = base + thread;
    const i64 end = piece <= p.groups ? group_bound(p, piece) : piece == p.groups + 1 ? p.rows : 0;
    __syncthreads();
    t.ends[thread + 1] = block_scan<Max, THREADS>(max(end, rows_done), t.scratch);
    if (thread == 0) t.ends[0] = rows_done, t.tiles[0] = tiles_done, t.base = base;
    __syncthreads();
    const i64 own = div_up(t.ends[thread + 1] - t.ends[thread], i64(TILE_M));
    t.tiles[thread + 1] = tiles_done + block_scan<Sum, THREADS>(own, t.scratch);
    __syncthreads();
  }

 public:
  BARACUDA_D GroupTiles() {
    if (threadIdx.x == 0) table().base = -THREADS, table().number = blockIdx.x;
    __syncthreads();
  }

  // Finds the block's next tile; false where there is none.
  template <class P> BARACUDA_D bool find(const P& p) const {
    Table& t = table();
    const i64 number = t.number, across = div_up(p.n, i64(TILE_N));
    __syncthreads();
    if (t.base < 0) next(p);
    while (number >= t.tiles[THREADS] * across) {
      if (t.base + THREADS >= p.groups + 2) return false;
      next(p);
    }
    if (threadIdx.x == 0) {
      int low = 0, high = THREADS - 1;  // the piece is the last one that begins at or before the tile
      while (low < high) {
        const int middle = (low + high + 1) / 2;
        if (t.tiles[middle] * across <= number) low = middle;
        else high = middle - 1;
      }
      const i64 piece = t.base + low, first = t.tiles[low];
      u64 row;
      const u64 column =
          divmod(static_cast<u64>(number - first * across), static_cast<u64>(t.tiles[low + 1] - first), row);
      t.tile.group = piece >= 1 && piece <= p.groups ? piece - 1 : -1;
      t.tile.m0 = t.ends[low] + static_cast<i64>(row) * TILE_M;
      t.tile.n0 = static_cast<i64>(column) * TILE_N;
      t.tile.end = t.ends[low + 1];
      t.number = number + gridDim.x;
    }
    __syncthreads();
    return true;
  }
  // The tile that was found.
  BARACUDA_D GroupTile tile() const { return table().tile; }
};

}  // namespace baracuda
