#pragma once
// group_walk the work tiles of all groups of rows, as each warp of a persistent block finds them for itself.
//
// Pieces are the groups, and two more: the rows before the first and after the last. Tiles are numbered piece by piece;
// within one in raster groups of some rows of tiles, for the L2 cache, down a raster group first and then along n. A block
// takes the numbers blockIdx.x, blockIdx.x + gridDim.x, …. The lanes of a warp have 32 pieces at a time in registers, so
// that warps need neither shared memory nor each other. All numbers have 32 bits.
#include "gemm/groups.cuh"

namespace baracuda {

template <int TILE_M, int TILE_N> class GroupWalk {
  static constexpr u32 group_rows = 16;
  u32 number = blockIdx.x;
  int base = -warp_size;   // the piece of the first lane
  int begin = 0, end = 0;  // rows of this lane's piece
  u32 tiles = 0;           // tiles along the rows of the pieces up to it

  // x[0] op x[1] op … up to this lane's.
  template <class Op, class T> static BARACUDA_D T scan(T x) {
#pragma unroll
    for (int step = 1; step < warp_size; step *= 2) {
      const T before = __shfl_up_sync(full_warp, x, step);
      if (lane_id() >= step) x = Op::apply(before, x);
    }
    return x;
  }
  static BARACUDA_D u32 tiles_of(int rows) { return (static_cast<u32>(rows) + TILE_M - 1) / TILE_M; }

  template <class P> BARACUDA_D void load(const P& p) {
    const int rows_done = shuffle(end, warp_size - 1);
    const u32 tiles_done = shuffle(tiles, warp_size - 1);
    base += warp_size;
    const i64 piece = base + lane_id();
    const i64 bound = piece <= p.groups ? group_bound(p, piece) : piece == p.groups + 1 ? p.rows : 0;
    end = scan<Max>(max(static_cast<int>(bound), rows_done));
    const int before = __shfl_up_sync(full_warp, end, 1);
    begin = lane_id() == 0 ? rows_done : before;
    tiles = tiles_done + scan<Sum>(tiles_of(end - begin));
  }

 public:
  // Finds the next tile; false where there is none. All lanes call.
  template <class P> BARACUDA_D bool next(const P& p, GroupTile& tile) {
    const u32 across = div_up(static_cast<u32>(p.n), u32(TILE_N));
    int lane;
    while ((lane = __popc(__ballot_sync(full_warp, number >= tiles * across))) == warp_size) {
      if (base + warp_size >= p.groups + 2) return false;
      load(p);
    }
    const int from = shuffle(begin, lane), to = shuffle(end, lane);
    const u32 rows = tiles_of(to - from), first = shuffle(tiles, lane) - rows;
    const u32 rest = number - first * across, inside = rest % (group_rows * across),
              top = rest / (group_rows * across) * group_rows;
    const u32 high = min(rows - top, group_rows);
    const int piece = base + lane;
    tile.group = piece >= 1 && piece <= p.groups ? piece - 1 : -1;
    tile.m0 = from + static_cast<int>(top + inside % high) * TILE_M;
    tile.n0 = static_cast<int>(inside / high) * TILE_N;
    tile.end = to;
    number += gridDim.x;
    return true;
  }
};

}  // namespace baracuda
