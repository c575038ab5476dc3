#pragma once
// raster     the order in which blocks take the tiles of a batch of products, for the L2 cache.
//
// Blocks that run at the same time should need few rows of a and few columns of b. So tiles are numbered in raster
// groups of `group_rows` rows of tiles, within a group down first and then along n; the batch's matrices follow each
// other. What a block computes does not depend on the order.
#include <baracuda/index.cuh>

namespace baracuda {

struct Raster {
  static constexpr int group_rows = 16;
  i64 batch, m, n;  // the batch index, the row and the column of the tile

  BARACUDA_D Raster(i64 block, i64 tiles_m, i64 tiles_n) {
    u64 inside, place, row;
    batch = static_cast<i64>(divmod(static_cast<u64>(block), static_cast<u64>(tiles_m * tiles_n), inside));
    const i64 first = static_cast<i64>(divmod(inside, static_cast<u64>(group_rows * tiles_n), place)) * group_rows;
    n = static_cast<i64>(divmod(place, static_cast<u64>(min<i64>(group_rows, tiles_m - first)), row));
    m = first + static_cast<i64>(row);
  }
};

}  // namespace baracuda
