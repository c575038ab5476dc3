#pragma once
// wgmma_groups the tiles of groups of rows, from the producer of a product of gemm/wgmma_sent.cuh to its consumers.
//
// A tile has rows of one group. Where the group ends within it, the rows of the next one are loaded and multiplied too,
// and not stored: no row has a part in the sums of another.
#include "gemm/group_walk.cuh"
#include "gemm/wgmma_sent.cuh"

namespace baracuda::gemm {

// By the producer's warp. rows: what gemm/group_walk.cuh reads. The batch index of a tile is its group, -1 for rows in none,
// which have no products.
template <class Product, class Rows> BARACUDA_D void send_groups(const Product& product, const Rows& rows) {
  const bool sends = lane_id() == 0;
  if (sends) product.prefetch();
  GroupWalk<tile_rows, Product::WIDTH> walk;
  Stage<Product::Ring::stages> at;
  for (GroupTile tile; walk.next(rows, tile);) {
    const int group = static_cast<int>(tile.group);
    if (sends) {
      product.send(at, {group, static_cast<int>(tile.m0), static_cast<int>(tile.n0), static_cast<int>(tile.end), 0,
                        group < 0 ? 0 : product.slices});
    }
  }
  if (sends) product.send_end(at);
}

}  // namespace baracuda::gemm
