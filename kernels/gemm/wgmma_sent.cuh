#pragma once
// wgmma_sent products of gemm/wgmma.cuh whose tiles the producer finds, and sends to the consumers.
//
// A tile goes with the first of its stages; one without products has a stage for itself. Base is a Product of clusters
// of one block.
#include "gemm/wgmma.cuh"

namespace baracuda::gemm {

// Where a tile begins, the first row that is none of it, and which of the batch's items it is of (-1: none). It is the
// sum of so many slices of k, from `k` on; there are no more tiles where these are less than 0.
struct SentTile {
  int item, m, n, end, k, slices;
};

template <class Base> struct SentProduct : Base {
  using Ring = typename Base::Ring;
  using Sums = typename Base::Sums;
  using Base::Base, Base::memory;

  static BARACUDA_D SentTile& place(u32 stage) {
    __shared__ SentTile places[Ring::stages];
    return places[stage];
  }

  // By one thread.
  BARACUDA_D void send(Stage<Ring::stages>& at, const SentTile& tile) const {
    const u32 stage = at.index();
    memory.empty[stage].wait(at.empty_parity());
    place(stage) = tile;
    if (tile.slices > 0) return this->fill(at, tile.m, tile.n, tile.item, tile.k, tile.slices);
    memory.full[stage].arrive();
    at.advance();
  }
  BARACUDA_D void send_end(Stage<Ring::stages>& at) const { send(at, {-1, 0, 0, 0, 0, -1}); }

  // By the warpgroup `group`: ready(tile, stage, slice) before a slice is multiplied, done(tile, d) with its sums. LEAD:
  // by how many slices the first warpgroup is ahead, so that one multiplies while the other finishes its tile.
  template <int LEAD = 0, class F, class G> BARACUDA_D void receive(int group, F ready, G done) const {
    static_assert(LEAD < Ring::stages, "the first warpgroup fills the ring while the second waits");
    Stage<Ring::stages> at;
    int lead = group == 0 ? LEAD : 0;  // slices after which the other warpgroup may begin, 0 where it has begun
    if constexpr (LEAD != 0) {
      if (group == 1) memory.led->wait(0);
    }
    for (;;) {
      const u32 stage = at.index();
      memory.full[stage].wait(at.full_parity());
      const SentTile tile = shuffle(place(stage), 0);  // by a shuffle: see warpgroup()
      if constexpr (LEAD != 0) {
        if (lead != 0 && tile.slices < lead) memory.led->arrive_as_warp(), lead = 0;
      }
      if (tile.slices < 0) break;
      Sums d;
      this->clear(d);
      if (tile.slices != 0) {
        this->multiply(
            d, at, group, tile.slices, [&](u32 stage, int slice) { ready(tile, stage, slice); },
            [&](int slice) {
              if constexpr (LEAD != 0) {
                if (slice + 1 == lead) memory.led->arrive_as_warp(), lead = 0;
              }
            });
      } else {
        this->release(stage);
        at.advance();
      }
      done(tile, d);
    }
    bulk_wait<0>();
  }
  // This warp's first row of a tile.
  static BARACUDA_D int row_of_warp(const SentTile& tile, int group) {
    return tile.m + 64 * group + static_cast<int>(threadIdx.x) % 128 / 32 * 16;
  }
};

}  // namespace baracuda::gemm
