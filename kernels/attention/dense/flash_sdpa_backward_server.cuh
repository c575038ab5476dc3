#pragma once
// flash_sdpa_backward_server.cuh    what the backward kernels with one producer and two consumer warpgroups share: a
//   block's work tile (a tile of keys), its turns at the sums of dq, and the order barrier of the consumers.
#include "attention/dense/flash_sdpa_backward_products.cuh"
#include "attention/dense/flash_sdpa_backward_terms.cuh"
#include <baracuda/pipeline.cuh>

namespace baracuda {
namespace attention {

// A tile of keys, and the first and last tile of queries that no limit cuts (all its queries see all its keys).
template <class Tile> struct WorkTile : Tile {
  int uncut[2];

  BARACUDA_D bool is_cut(int at) const { return at < uncut[0] || at > uncut[1]; }
  // Claims the next ticket's tile; left < 0 says that there is none. Called by one thread.
  template <int QUERIES, int KEYS, class Where, class P> BARACUDA_D void claim(const P& p) {
    const u32 ticket = atomicAdd(static_cast<u32*>(p.turns), 1u), heads = static_cast<u32>(p.heads) / p.group;
    this->left = -1;
    if (ticket >= heads * static_cast<u32>(p.key_tiles)) return;
    if constexpr (is_same<Tile, RisingTile>) {
      static_cast<Tile&>(*this) = Where::template rising_tile<QUERIES, KEYS>(p, ticket, heads);
    } else {
      static_cast<Tile&>(*this) = Where::template key_tile<QUERIES, KEYS>(p, ticket, heads);
    }
    const i64 k0 = static_cast<i64>(this->tile) * KEYS - this->of.shift, most = numeric<int>::max();
    const i64 low = k0 + KEYS - 1 - p.right, high = min<i64>(k0 + 1 + p.left, this->of.query_len) - QUERIES;
    uncut[0] = static_cast<int>(min<i64>(most, max<i64>(0, (low + QUERIES - 1) / QUERIES)));
    uncut[1] = this->left < KEYS || high < 0 ? -1 : static_cast<int>(min<i64>(most, high / QUERIES));
  }
};

// A reducing warp's turn at the sums of dq of a tile of queries: blocks add in the order in which a head's tiles of
// keys are taken, the first one stores. With p.any_order nobody waits and all add.
template <int QUERIES, int KEYS, int TILE, class P, class Tile> struct Turn {
  u32 turn;
  u32* counter;
  float* sums;
  bool ordered, adds, begins;  // adds: whether this lane does

  BARACUDA_D Turn(const P& p, const Tile& block, const Walk& now)
      : turn(turn_at<QUERIES, KEYS>(p, block, now)), counter(counter_at(p, block, now)),
        sums(static_cast<float*>(p.sums) + static_cast<i64>(tile_at(p, block, now)) * TILE), ordered(!p.any_order),
        adds(p.dq != nullptr && lane_id() == 0), begins(ordered && turn == 0) {
    if (adds && ordered && !begins) await_turn(counter, turn);
    __syncwarp();
  }
  // Starts adding floats from shared memory to the sums from `at` on, as one group of bulk operations.
  BARACUDA_D void add(int at, const float* from, int floats) const {
    bulk_fence();
    if (begins) bulk_store(sums + at, from, floats * 4);
    else bulk_add(sums + at, from, floats * 4);
    bulk_commit();
  }
  BARACUDA_D void pass() const {
    if (adds && ordered) {
      bulk_wait<0>();
      pass_turn(counter, turn + 1);
    }
    __syncwarp();
  }
};

// The order barrier (ping-pong): the two consumer warpgroups take turns at starting products, so that the exponentials
// of one overlap the products of the other. The second waits before it starts; in the end each has waited as often as
// the other has passed. Named barriers FIRST and FIRST + 1.
template <int FIRST> struct OrderBarrier {
  int group;

  BARACUDA_D void wait() const { sync_threads<256>(FIRST + group); }
  BARACUDA_D void pass() const { arrive_threads<256>(FIRST + (group ^ 1)); }
};

}  // namespace attention
}  // namespace baracuda
