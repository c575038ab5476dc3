#pragma once
// experts    rows of x sorted by expert, each expert with weights of its own, as the tiles of gemm/groups.cuh.
//
// P has `total` rows of `experts` groups, n, and offsets, offset_stride, wide_offsets and from_zero as groups.cuh says.
#include "gemm/groups.cuh"

namespace baracuda {

// What groups.cuh reads, by its names, of which P has some for other things.
struct ExpertRows {
  const void* offsets;
  i64 rows, groups, offset_stride, n;
  int wide_offsets, from_zero;

  template <class P>
  BARACUDA_D explicit ExpertRows(const P& p)
      : offsets(p.offsets), rows(p.total), groups(p.experts), offset_stride(p.offset_stride), n(p.n),
        wide_offsets(p.wide_offsets), from_zero(p.from_zero) {}
};

// Calls each(tile) for the block's tiles of one expert's rows, and none(tile) for those of rows in no group. The threads
// meet before each tile.
template <int ROWS, int COLUMNS, int THREADS, class P, class Each, class None>
BARACUDA_D void expert_tiles(const P& p, const Each& each, const None& none) {
  const GroupTiles<ROWS, COLUMNS, THREADS> tiles;
  const ExpertRows rows(p);
  while (tiles.find(rows)) {
    const GroupTile tile = tiles.tile();
    if (tile.group >= 0) each(tile);
    else none(tile);
  }
}

}  // namespace baracuda
