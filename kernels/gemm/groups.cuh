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

constexpr int group_threads = 256;

// Bound i = 0 … groups, clamped to the rows but not yet to the bounds before it.
template <class P> BARACUDA_D i64 group_bound(const P& p, i64 i) {
  if (p.from_zero && i == 0) return 0;
  const i64 at = (i - p.from_zero) * p.offset_stride;
  const i64 bound = p.wide_offsets ? static_cast<const i64*>(p.offsets)[at] : static_cast<const i32*>(p.offsets)[at];
  return max<i64>(0, min(p.rows, bound));
}

// Rows of one group. All group_threads call.
struct GroupRows {
  i64 begin, end;
  template <class P> BARACUDA_D GroupRows(const P& p, i64 group) {
    i64 before = 0;
    for (i64 i = threadIdx.x; i <= group; i += group_threads) before = max(before, group_bound(p, i));
    begin = block_reduce<Max, group_threads>(before);
    end = max(begin, group_bound(p, group + 1));
  }
};

// A tile of TILE_M x TILE_N places of one group's rows; group -1: of rows in no group.
struct GroupTile {
  i64 group, m0, n0, end;  // end: the group's last row, and one
};

// The tiles of all groups, numbered along the rows of a group, then along n, then along the groups, so that blocks next
// to each other share a part of the group's right matrix. The rows before the first group and after the last are two
// pieces more. A block asks for ascending numbers; it holds a table of group_threads pieces at a time. All group_threads
// call.
template <int TILE_M, int TILE_N> class GroupTiles {
  i64 base = -group_threads;          // the first piece of the table
  i64 rows_done = 0, tiles_done = 0;  // of the pieces before it

  struct Table {
    i64 ends[group_threads + 1], tiles[group_threads + 1];  // of the pieces up to each, the first entry before them all
    i64 scratch[group_threads / warp_size];
  };

  template <class P> BARACUDA_D void next(const P& p, Table& t) {
    const int thread = static_cast<int>(threadIdx.x);
    __syncthreads();
    if (base >= 0) rows_done = t.ends[group_threads], tiles_done = t.tiles[group_threads];
    __syncthreads();
    base += group_threads;
    const i64 piece = base + thread;
    const i64 end = piece <= p.groups ? group_bound(p, piece) : piece == p.groups + 1 ? p.rows : 0;
    t.ends[thread + 1] = block_scan<Max, group_threads>(max(end, rows_done), t.scratch);
    if (thread == 0) t.ends[0] = rows_done, t.tiles[0] = tiles_done;
    __syncthreads();
    const i64 own = div_up(t.ends[thread + 1] - t.ends[thread], i64(TILE_M));
    t.tiles[thread + 1] = tiles_done + block_scan<Sum, group_threads>(own, t.scratch);
    __syncthreads();
  }

 public:
  // Finds tile `number`; false where there are not as many.
  template <class P> BARACUDA_D bool find(const P& p, i64 number, GroupTile& tile) {
    __shared__ Table t;
    const i64 across = div_up(p.n, i64(TILE_N));
    if (base < 0) next(p, t);
    while (number >= t.tiles[group_threads] * across) {
      if (base + group_threads >= p.groups + 2) return false;
      next(p, t);
    }
    int low = 0, high = group_threads - 1;  // the piece is the last one that begins at or before the tile
    while (low < high) {
      const int middle = (low + high + 1) / 2;
      if (t.tiles[middle] * across <= number) low = middle;
      else high = middle - 1;
    }
    const i64 piece = base + low, first = t.tiles[low];
    u64 row;
    const u64 column =
        divmod(static_cast<u64>(number - first * across), static_cast<u64>(t.tiles[low + 1] - first), row);
    tile.group = piece >= 1 && piece <= p.groups ? piece - 1 : -1;
    tile.m0 = t.ends[low] + static_cast<i64>(row) * TILE_M;
    tile.n0 = static_cast<i64>(column) * TILE_N;
    tile.end = t.ends[low + 1];
    return true;
  }
};

}  // namespace baracuda
