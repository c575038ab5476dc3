#pragma once
// block_turns    under a block mask, which tiles of keys add to dq at a tile of queries, and in which order.
//
// A row of numbers for each tile of queries of each head that has a mask of its own: for each tile of keys how many tiles
// before it have a pair that is seen, and behind them how many there are. P has the fields of
// schedules/attention/block_masks.py: TURNS.
#include "attention/block_mask.cuh"

namespace baracuda {
namespace attention {

// The row of a tile of queries.
template <class P> BARACUDA_D u32* block_turns(const P& p, u32 b, u32 h, i64 at) {
  return static_cast<u32*>(p.block_turns) + b * p.turns_stride[0] + h * p.turns_stride[1] + at * (p.key_tiles + 1);
}

}  // namespace attention

// A warp for each of p.rows rows; 256 threads.
template <int QUERIES, int KEYS, class P> BARACUDA_D void flash_block_turns(const P& p) {
  using namespace attention;
  const i64 row = blockIdx.x * 8ll + threadIdx.x / warp_size;
  if (row >= p.rows) return;
  const i64 head = row / p.tiles, at = row % p.tiles;
  const u32 b = static_cast<u32>(head / p.own_heads), h = static_cast<u32>(head % p.own_heads);
  const MaskedBlocks<P> blocks(p, b, h);
  const Sequence of = Dense::sequence(p);
  const i64 first = of.template first_tile<QUERIES, KEYS>(p, at), end = of.template end_tile<QUERIES, KEYS>(p, at);
  const int key_tiles = static_cast<int>(p.key_tiles);
  u32* const turns = block_turns(p, b, h, at);
  u32 count = 0;
  for (int base = 0; base < key_tiles; base += warp_size) {
    const int n = base + lane_id();
    const bool adds = n >= first && n < end && blocks.any(static_cast<int>(at) * QUERIES, QUERIES, n * KEYS, KEYS);
    const u32 found = __ballot_sync(full_warp, adds);
    if (n < key_tiles) turns[n] = count + __popc(found & ((1u << lane_id()) - 1));
    count += __popc(found);
  }
  if (lane_id() == 0) turns[key_tiles] = count;
}

}  // namespace baracuda
