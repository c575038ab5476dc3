#pragma once
// raster     the order in which blocks take the tiles of a batch of products, for the L2 cache.
//
// Blocks that run at the same time should need few rows of a and few columns of b. So tiles are numbered in bands of
// `band` rows of tiles, within a band down first and then along n; the batch's items follow each other. What a block
// computes does not depend on the order.
#include <baracuda/index.cuh>

namespace baracuda {

struct Raster {
  static constexpr int band = 16;
  i64 batch, m, n;  // the item of the batch, the row and the column of the tile

  BARACUDA_D Raster(i64 block, i64 tiles_m, i64 tiles_n) {
    u64 inside, place, row;
    batch = static_cast<i64>(divmod(static_cast<u64>(block), static_cast<u64>(tiles_m * tiles_n), inside));
    const i64 first = static_cast<i64>(divmod(inside, static_cast<u64>(band * tiles_n), place)) * band;
    n = static_cast<i64>(divmod(place, static_cast<u64>(min<i64>(band, tiles_m - first)), row));
    m = first + static_cast<i64>(row);
  }
};

}  // namespace baracuda
