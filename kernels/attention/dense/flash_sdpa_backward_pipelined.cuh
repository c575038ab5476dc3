#pragma once
// flash_sdpa_backward_pipelined.cuh    the block of flash_sdpa_backward_pipelined.cu, its queue of work tiles, and its
//   producer warpgroup: two warps that load tiles, two that add partial dq to the sums.
#include "attention/dense/flash_sdpa_backward_server.cuh"

namespace baracuda {
namespace attention {

// The queue of a block's work tiles, in ticket order. One thread claims them; each reading warp waits for tile n and
// releases it when done.
template <int QUERIES, int KEYS, class Where> struct WorkQueue {
  static constexpr u32 SLOTS = 3;
  WorkTile<KeyTile> tiles[SLOTS];
  Barrier full[SLOTS], empty[SLOTS];

  BARACUDA_D void init(u32 readers) {
    for (u32 n = 0; n < SLOTS; ++n) full[n].init(1), empty[n].init(readers);
  }
  template <class P> BARACUDA_D void produce(u32 n, const P& p) {
    const Stage<SLOTS> slot{n};
    empty[slot.index()].wait(slot.empty_parity());
    tiles[slot.index()].template claim<QUERIES, KEYS, Where>(p);
    full[slot.index()].arrive();
  }
  BARACUDA_D const WorkTile<KeyTile>& await(u32 n) {
    const Stage<SLOTS> slot{n};
    full[slot.index()].wait(slot.full_parity());
    return tiles[slot.index()];
  }
  BARACUDA_D void release(u32 n) { empty[n % SLOTS].arrive_as_warp(); }
};

// A block's shapes, its operands in shared memory, and their barriers. Operands of products are panels of 64 columns.
template <class T, int D, int STAGES, class Where> struct PipelinedBlock {
  static constexpr int LOADERS = 64, GROUPS = 2, WARPS = 4 * GROUPS, KEYS = 64 * GROUPS, QUERIES = 64;
  static constexpr int TILE = QUERIES * D, SCORES = KEYS * QUERIES;
  static constexpr int TO_GRADS = STAGES * TILE;                // from queries
  static constexpr int WIDTH = D / GROUPS;                      // columns of dq of a consumer
  static constexpr int KV_STAGES = D == 64 ? 2 : 1;             // stages of keys and values
  static constexpr int PRODUCER_REGISTERS = D == 64 ? 56 : 40;  // registers a thread; 168 at launch
  static constexpr int CONSUMER_REGISTERS = (3 * 168 - PRODUCER_REGISTERS) / 2;
  using Element = T;
  using Stages = Stage<STAGES>;
  using KeyStages = Stage<KV_STAGES>;

  struct Barriers {
    Barrier keys_full[KV_STAGES], keys_empty[KV_STAGES], values_full[KV_STAGES], values_empty[KV_STAGES];
    Barrier rows_full[STAGES], rows_empty[STAGES];
    // One for even steps and one for odd ones, so that each reducing warp waits for its own steps only.
    Barrier ds_full[2], ds_empty[2], partial_full[GROUPS][2], partial_empty[GROUPS][2];

    BARACUDA_D void init() {
      for (int n = 0; n < KV_STAGES; ++n) {
        keys_full[n].init(warp_size), keys_empty[n].init(WARPS);
        values_full[n].init(warp_size), values_empty[n].init(WARPS);
      }
      for (int n = 0; n < STAGES; ++n) rows_full[n].init(LOADERS), rows_empty[n].init(WARPS);
      for (int n = 0; n < 2; ++n) ds_full[n].init(WARPS), ds_empty[n].init(WARPS);
      for (int n = 0; n < 2 * GROUPS; ++n) partial_full[n / 2][n % 2].init(4), partial_empty[n / 2][n % 2].init(1);
    }
  };
  static constexpr u32 BYTES =
      sizeof(T) * (2 * KV_STAGES * KEYS * D + 2 * STAGES * TILE + 2 * SCORES) + 4 * TILE + 8 * STAGES * QUERIES + 1024;
  using Work = WorkQueue<QUERIES, KEYS, Where>;
  static_assert(BYTES + sizeof(Barriers) + sizeof(Work) <= 227 << 10);

  T *const keys, *const values;    // [KV_STAGES][PANELS][KEYS][64]
  T *const queries, *const grads;  // [STAGES][PANELS][QUERIES][64]: q, dy
  T* const ds;                     // [2][KEYS][QUERIES], transposed
  float* const partials;           // [GROUPS][QUERIES][WIDTH]: partial dq
  Stats* const stats;              // [STAGES][QUERIES / 2]
  Barriers& sync;
  Work& work;

  // first: at a multiple of 1024 bytes
  BARACUDA_D PipelinedBlock(T* first, Barriers& sync, Work& work)
      : keys(first), values(keys + KV_STAGES * KEYS * D), queries(values + KV_STAGES * KEYS * D),
        grads(queries + TO_GRADS), ds(grads + STAGES * TILE), partials(reinterpret_cast<float*>(ds + 2 * SCORES)),
        stats(reinterpret_cast<Stats*>(partials + TILE)), sync(sync), work(work) {}
};

// Loads a work tile's keys, or its values, by a warp.
template <class Block, class P>
BARACUDA_D void load_keys(const Block& block, const P& p, const KeyTile& tile, typename Block::KeyStages stage,
                          bool values) {
  using T = typename Block::Element;
  constexpr int KEYS = Block::KEYS, D = Block::TILE / Block::QUERIES;
  constexpr int ONCE = 4096 / D;  // more rows at a time would take more registers
  const bool wide = p.wide & (values ? 4 : 2);
  (values ? block.sync.values_empty : block.sync.keys_empty)[stage.index()].wait(stage.empty_parity());
  const auto& stride = p.stride[values ? 2 : 1];
  const T* const from = key_rows<T, KEYS>(values ? p.v : p.k, stride, tile);
  T* const to = (values ? block.values : block.keys) + stage.index() * (KEYS * D);
#pragma unroll 1
  for (int r = 0; r < KEYS; r += ONCE) {
    tile::copy_as_warp<ONCE, D, KEYS>(to + r * 64, from + r * stride[2], stride[2], tile.left - r,
                                      values ? p.d_v : p.d_k, wide);
  }
  (values ? block.sync.values_full : block.sync.keys_full)[stage.index()].arrive_when_copied(wide);
}
// Loads a step's rows of q and their stats, or those of dy, by a warp.
template <class Block, class P>
BARACUDA_D void load_queries(const Block& block, const P& p, const KeyTile& tile, const Walk& step, u32 stage,
                             bool grads) {
  using T = typename Block::Element;
  constexpr int QUERIES = Block::QUERIES, TILE = Block::TILE;
  if (!grads) {
    const Stats* const from = stats_at<QUERIES>(p, tile, step);
    cp_async_16(block.stats + stage * (QUERIES / 2) + threadIdx.x, from + threadIdx.x);
  }
  const auto& stride = p.stride[grads ? 3 : 0];
  const T* const from = query_rows<T, QUERIES>(p, grads ? p.dy : p.q, stride, tile, step);
  const bool wide = p.wide & (grads ? 8 : 1);
  tile::copy_as_warp<QUERIES, TILE / QUERIES>((grads ? block.grads : block.queries) + stage * TILE, from, stride[2],
                                              rows_at<QUERIES>(tile, step), grads ? p.d_v : p.d_k, wide);
  block.sync.rows_full[stage].arrive_when_copied(wide);
}
// The loading warps. A work tile has one step more than it has tiles of queries, an empty one after the last.
template <class Block, class P> BARACUDA_D void load_tiles(const Block& block, const P& p) {
  u32 steps = 0;
#pragma unroll 1
  for (u32 n = 0;; ++n) {
    if (threadIdx.x == 0) block.work.produce(n, p);
    const auto& tile = block.work.await(n);
    if (tile.left < 0) break;
    Walk now{tile.last, 0};
    bool more = true;
#pragma unroll 1
    for (u32 count = 1; more; ++count) {
      // The second warp has dy and values. Recomputed each time: kept, it would hold registers.
      const bool second = forgotten(static_cast<int>(threadIdx.x)) >= warp_size;
      more = now.at >= tile.first;
      if (more || count != 1) {
        const typename Block::Stages stage{steps++};
        block.sync.rows_empty[stage.index()].wait(stage.empty_parity());
        if (more) {
          load_queries(block, p, tile, now, stage.index(), second);
          now.step(p.group);
        } else {
          block.sync.rows_full[stage.index()].arrive();
        }
      }
      // With one stage of keys, the last tile's are needed until its last step.
      const u32 when = second || Block::KV_STAGES == 2 ? 1 : 2;
      if (count == when || (!more && count < when)) load_keys(block, p, tile, {n}, second);
    }
    block.work.release(n);
  }
}

// The reducing warps, which alternate in steps: they add the consumers' partial dq of a step to the sums.
template <class Block, class P> BARACUDA_D void reduce_dq(const Block& block, const P& p) {
  constexpr int GROUPS = Block::GROUPS, QUERIES = Block::QUERIES, PARTIAL = QUERIES * Block::WIDTH;
  const u32 self = threadIdx.x / warp_size % 2;
  u32 steps = 0;  // as the loading warps count them
#pragma unroll 1
  for (u32 n = 0;; ++n) {
    const auto& tile = block.work.await(n);
    if (tile.left < 0) break;
    Walk now{tile.last, 0};
    const bool some = now.at >= tile.first;
    if (some && steps % 2 != self) {  // the empty partial dq that consumers publish before the first step
      const Stage<2> place{steps};
      for (int group = 0; group < GROUPS; ++group) {
        block.sync.partial_full[group][place.index()].wait(place.full_parity());
        block.sync.partial_empty[group][place.index()].arrive_as_warp();
      }
    }
#pragma unroll 1
    for (; now.at >= tile.first; now.step(p.group), ++steps) {
      if (steps % 2 != self) continue;
      const Turn<QUERIES, Block::KEYS, Block::TILE, P, KeyTile> turn(p, tile, now);
      const Stage<2> place{steps + 1};
#pragma unroll 1
      for (int group = 0; group < GROUPS; ++group) {
        block.sync.partial_full[group][place.index()].wait(place.full_parity());
        if (turn.adds) {
          turn.add(group * PARTIAL, block.partials + group * PARTIAL, PARTIAL);
          bulk_wait_read<0>();
        }
        block.sync.partial_empty[group][place.index()].arrive_as_warp();
      }
      turn.pass();
    }
    steps += some;
    block.work.release(n);
  }
}

}  // namespace attention
}  // namespace baracuda
