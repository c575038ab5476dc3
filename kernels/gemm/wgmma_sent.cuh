#pragma once
// wgmma_sent products of gemm/wgmma.cuh whose work tiles the producer finds, and sends to the consumers.
//
// A tile goes with the first of its stages; one without products has a stage for itself. Base is a Product of clusters
// of one block.
#include "gemm/wgmma.cuh"

namespace baracuda::gemm {

// Where a tile begins, the first row that is none of it, and its batch index or group (-1: none). It is the sum of so
// many slices of k, from `k` on; there are no more tiles where these are less than 0.
struct SentTile {
  int batch, m, n, end, k, slices;
};

// What is done with a slice of a tile before it is multiplied: nothing.
struct SentAsItIs {
  BARACUDA_D void operator()(const SentTile&, u32, int) const {}
};

template <class Base> struct SentProduct : Base {
  using Ring = typename Base::Ring;
  using Accumulator = typename Base::Accumulator;
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
    if (tile.slices > 0) return this->fill(at, tile.m, tile.n, tile.batch, tile.k, tile.slices);
    memory.full[stage].arrive();
    at.advance();
  }
  BARACUDA_D void send_end(Stage<Ring::stages>& at) const { send(at, {-1, 0, 0, 0, 0, -1}); }

  // By a warpgroup of consumers: finish(tile, acc) with the sums of a tile, prepare(tile, stage, slice) before a slice is
  // multiplied. LEAD: by how many slices the first warpgroup is ahead, so that one multiplies while the other finishes its
  // tile.
  template <int LEAD = 0, class Finish, class Prepare = SentAsItIs>
  BARACUDA_D void receive(int consumer, const Finish& finish, const Prepare& prepare = {}) const {
    static_assert(LEAD < Ring::stages, "the first warpgroup fills the ring while the second waits");
    Stage<Ring::stages> at;
    int lead = consumer == 0 ? LEAD : 0;  // slices after which the other warpgroup may begin, 0 where it has begun
    if constexpr (LEAD != 0) {
      if (consumer == 1) memory.led->wait(0);
    }
    for (;;) {
      // Wait for the first stage of a tile, which the tile comes with.
      const u32 stage = at.index();
      memory.full[stage].wait(at.full_parity());
      const SentTile tile = shuffle(place(stage), 0);  // by a shuffle: see warpgroup()
      if constexpr (LEAD != 0) {
        if (lead != 0 && tile.slices < lead) memory.led->arrive_as_warp(), lead = 0;
      }
      if (tile.slices < 0) break;
      Accumulator acc;
      this->clear(acc);
      if (tile.slices != 0) {
        this->multiply(acc, at, consumer, tile.slices, lead,
                       [&](u32 stage, int slice) { prepare(tile, stage, slice); });
        lead = 0;
      } else {
        // Arrive: the stage had nothing but the tile.
        this->release(stage);
        at.advance();
      }
      finish(tile, acc);
    }
    bulk_wait<0>();
  }
  // This warp's first row of a tile.
  static BARACUDA_D int row_of_warp(const SentTile& tile, int consumer) { return tile.m + 64 * consumer + warp_row(); }
};

}  // namespace baracuda::gemm
