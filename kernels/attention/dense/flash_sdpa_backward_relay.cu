// flash_sdpa_backward_relay    the gradients of flash_sdpa_backward_mma (formula there) for head_dim 256 on sm_90a,
//   where two consumer warpgroups have no registers for dk and dv of 64 keys each. Masks and dropout go to
//   flash_sdpa_backward_wgmma.
//
// Schedule. A block has one tile of 64 keys and ends with it. Both consumers work on the same 64 keys: the first
// computes the weights and owns dv, the second computes ds and owns dk. Each has its left operand in registers, as its
// own scores left it. The first passes weights to the second through shared memory, the second passes ds to both for
// dq, of which each consumer computes half of the columns. The producer warpgroup and the order barrier that keeps
// consumers' products apart are those of flash_sdpa_backward_pipelined. Shared memory holds two stages of queries and
// one of dy.
//
// RISING (causal, fixed order of sums): blocks of most heads take tiles of keys from the last on and walk queries from
// the diagonal up. Each begins where it is the first to add to dq, and then follows one step behind the block before
// it, so that none waits. The other heads go last and walk down, longest blocks first.
//
// Order of sums: dk and dv over tiles of queries in walking order, in one accumulator; dq over tiles of keys in the
// order of turns, unless p.any_order. Measurements: docs/design/attention-backward.md.
#include "attention/dense/flash_sdpa_backward_server.cuh"

namespace baracuda {
namespace attention {

// A block's shapes, its operands in shared memory, and their barriers. Operands of products are panels of 64 columns.
template <class T, int D> struct RelayBlock {
  static constexpr int THREADS = 384, LOADERS = 64, KEYS = 64, QUERIES = 64, TILE = QUERIES * D,
                       SCORES = KEYS * QUERIES;
  // columns of dq in one product; such units a group
  static constexpr int UNIT = 64, UNITS = D / UNIT / 2, PARTIAL = QUERIES * UNIT;
  static_assert(UNITS == 2, "the parity of a unit's phase is the group's number");
  // registers a thread; 168 at launch
  static constexpr int PRODUCER_REGISTERS = 40, CONSUMER_REGISTERS = (3 * 168 - PRODUCER_REGISTERS) / 2;
  using Element = T;

  struct Barriers {
    Barrier keys_full, queries_full[2], queries_empty[2], grads_full, grads_empty;
    Barrier weights_full, weights_empty, ds_full[2], ds_empty[2];
    // Per unit, one for even steps and one for odd ones (each reducing warp skips every other step); one phase for each
    // group.
    Barrier partial_full[2][2], partial_empty[2][2];

    BARACUDA_D void init() {
      keys_full.init(THREADS);
      grads_full.init(LOADERS), grads_empty.init(8);
      weights_full.init(4), weights_empty.init(4);
      for (int n = 0; n < 2; ++n) {
        queries_full[n].init(LOADERS), queries_empty[n].init(4);
        ds_full[n].init(4), ds_empty[n].init(8);
      }
      for (int n = 0; n < 4; ++n) partial_full[n / 2][n % 2].init(4), partial_empty[n / 2][n % 2].init(1);
    }
  };

  T *const keys, *const values;  // [PANELS][KEYS][64], at the end dk and dv
  T* const queries;              // [2][PANELS][QUERIES][64]
  T* const grads;                // [PANELS][QUERIES][64]: dy
  T* const ds;                   // [2][KEYS][QUERIES], transposed
  uint4* const weights;          // [4][128]: fragments, by thread
  float* const partials;         // [2][QUERIES][UNIT]: partial dq
  Stats* const stats;            // [2][QUERIES / 2]
  Barriers& sync;

  // first: at a multiple of 1024 bytes
  BARACUDA_D RelayBlock(T* first, Barriers& sync)
      : keys(first), values(keys + KEYS * D), queries(values + KEYS * D), grads(queries + 2 * TILE), ds(grads + TILE),
        weights(reinterpret_cast<uint4*>(ds + 2 * SCORES)), partials(reinterpret_cast<float*>(weights + 512)),
        stats(reinterpret_cast<Stats*>(partials + 2 * PARTIAL)), sync(sync) {}
};

// Starts copies of the keys and values; called by all threads.
template <class Block, class P> BARACUDA_D void load_keys(const Block& block, const P& p, const KeyTile& tile) {
  using T = typename Block::Element;
  constexpr int KEYS = Block::KEYS, D = Block::TILE / Block::QUERIES;
  const auto load = [&](T* to, const void* x, const i64(&stride)[3], int cols, bool wide) {
    tile::copy_panels<KEYS, D, Block::THREADS>(to, key_rows<T, KEYS>(x, stride, tile), stride[2], tile.left, cols,
                                               wide);
  };
  load(block.keys, p.k, p.stride[1], p.d_k, p.wide & 2);
  load(block.values, p.v, p.stride[2], p.d_v, p.wide & 4);
  block.sync.keys_full.arrive_when_copied((p.wide & 6) == 6);
}

// The loading warps, each with half of the rows of q and dy.
template <class Block, class Tile, class P>
BARACUDA_D void load_queries(const Block& block, const P& p, const Tile& tile, Walk now) {
  using T = typename Block::Element;
  constexpr int QUERIES = Block::QUERIES, D = Block::TILE / QUERIES, HALF = QUERIES / 2;
  auto& sync = block.sync;
  int row0 = 0;
  const auto load = [&](T* to, const void* x, const i64(&stride)[3], int cols, bool wide) {
    const T* const from = query_rows<T, QUERIES>(p, x, stride, tile, now, row0);
    tile::copy_as_warp<HALF, D, QUERIES>(to + row0 * 64, from, stride[2], rows_at<QUERIES>(tile, now) - row0, cols,
                                         wide);
  };
  u32 steps = 0;
#pragma unroll 1
  for (; tile.sees(now.at); now.step(p.group, tile), ++steps) {
    const Stage<2> stage{steps};
    const Stage<1> grad{steps};
    const u32 at = stage.index();
    // recomputed each time: kept, it would hold a register
    row0 = forgotten(static_cast<int>(threadIdx.x)) < warp_size ? 0 : HALF;
    sync.queries_empty[at].wait(stage.empty_parity());
    if (row0 == 0) {
      cp_async_16(block.stats + at * (QUERIES / 2) + threadIdx.x, stats_at<QUERIES>(p, tile, now) + threadIdx.x);
    }
    load(block.queries + at * Block::TILE, p.q, p.stride[0], p.d_k, p.wide & 1);
    sync.queries_full[at].arrive_when_copied(p.wide & 1);
    sync.grads_empty.wait(grad.empty_parity());
    load(block.grads, p.dy, p.stride[3], p.d_v, p.wide & 8);
    sync.grads_full.arrive_when_copied(p.wide & 8);
  }
  if (steps != 0) {  // the empty step after the last, whose scores consumers start and do not read
    const Stage<2> stage{steps};
    sync.queries_empty[stage.index()].wait(stage.empty_parity());
    sync.queries_full[stage.index()].arrive();
    sync.grads_empty.wait(Stage<1>{steps}.empty_parity());
    sync.grads_full.arrive();
  }
}

// The reducing warps, which alternate in steps: they add the consumers' partial dq of a step to the sums.
template <class Block, class Tile, class P>
BARACUDA_D void reduce_dq(const Block& block, const P& p, const Tile& tile, Walk now) {
  constexpr int UNITS = Block::UNITS, PARTIAL = Block::PARTIAL;
  auto& sync = block.sync;
  const u32 self = threadIdx.x / warp_size % 2;
  u32 steps = 0;
  if (tile.sees(now.at) && self == 1) {
    for (int n = 0; n < 2 * UNITS; ++n) {  // the empty partial dq that consumers publish before the first step
      sync.partial_full[n % UNITS][0].wait(n / UNITS);
      sync.partial_empty[n % UNITS][0].arrive_as_warp();
    }
  }
#pragma unroll 1
  for (; tile.sees(now.at); now.step(p.group, tile), ++steps) {
    if (steps % 2 != self) continue;
    const Turn<Block::QUERIES, Block::KEYS, Block::TILE, P, Tile> turn(p, tile, now);
    const u32 place = (steps + 1) % 2;
#pragma unroll 1
    for (int group = 0; group < 2; ++group) {
#pragma unroll
      for (int unit = 0; unit < UNITS; ++unit) {
        sync.partial_full[unit][place].wait(group);
        if (turn.adds) turn.add((group * UNITS + unit) * PARTIAL, block.partials + unit * PARTIAL, PARTIAL);
      }
      if (turn.adds) bulk_wait_read<1>();
      sync.partial_empty[0][place].arrive_as_warp();
      if (turn.adds) bulk_wait_read<0>();
      sync.partial_empty[1][place].arrive_as_warp();
    }
    turn.pass();
  }
}

// A consumer warpgroup: the first makes the weights and owns dv, the second makes ds and owns dk.
template <class Block, class Tile, int TERMS, class P> struct RelayConsumer {
  using T = typename Block::Element;
  static constexpr int KEYS = Block::KEYS, QUERIES = Block::QUERIES, TILE = Block::TILE, SCORES = Block::SCORES;
  static constexpr int UNIT = Block::UNIT, UNITS = Block::UNITS, D = TILE / QUERIES;
  using Scores = float[QUERIES / 8][4];
  using Fragments = u32[QUERIES / 16][4];
  using PartialDq = float[UNIT / 8][4];
  enum Meeting { of_consumers = 1, of_group, of_order = of_group + 2 };  // named barriers

  const Block& block;
  const P& p;
  const Tile& tile;
  Walk now;
  u32 steps = 0;
  const int group, warp, key0;  // warp: of the group's; key0: its first key
  const bool weighs;
  const u64 query, grad, score;
  const u64 mine;     // the group's left operand of scores
  const u64 to_keys;  // the group's columns of dq
  const int quad;
  TermsOf<TERMS, float, true, P> terms;
  const int key;  // the thread's first
  const float c;
  const OrderBarrier<of_order> order;

  BARACUDA_D RelayConsumer(const Block& block, const P& p, const Tile& tile, const Walk& first)
      : block(block), p(p), tile(tile), now(first), group(warpgroup() - 1),
        warp(static_cast<int>(threadIdx.x) / warp_size % 4), key0(warp * 16), weighs(group == 0),
        query(wgmma_operand(block.queries)), grad(wgmma_operand(block.grads)), score(wgmma_operand(block.ds)),
        mine(wgmma_operand(weighs ? block.keys : block.values)),
        to_keys(wgmma_operand(block.keys + group * (UNITS * KEYS * 64))), quad(forgotten(lane_id() % 4)),
        terms(p, p.query_len, p.key_len, p.shift), key(static_cast<int>(tile.tile) * KEYS + key0 + lane_id() / 4),
        c(static_cast<float>(p.scale * 1.4426950408889634)), order{group} {
    if constexpr (TERMS != 0) {
      terms.settle(tile.of);
      terms.enter(tile.b, tile.kv * p.group);
    }
  }

  // Waits for the rows of a step: queries in the first group, dy in the second.
  BARACUDA_D void await_rows(u32 step) const {
    const Stage<2> stage{step};
    if (weighs) block.sync.queries_full[stage.index()].wait(stage.full_parity());
    else block.sync.grads_full.wait(step % 2);
    wgmma_publish();
  }
  // Starts the step's scores in the first group, dP in the second.
  BARACUDA_D void start_step(Scores& s, u32 stage) const {
    const u64 y = weighs ? query + stage * (TILE / 8) : grad;
    wgmma_fence();
    start_scores<T, D, KEYS, QUERIES>(s, mine, y);
  }
  BARACUDA_D void hide_masked(Fragments& x16) const {
    const Mask mask = mask_at<QUERIES, KEYS>(p, tile, now);
    hide(x16, 0, key0, mask), hide(x16, 4, key0, mask);
  }
  // The first group: weights of the step as left operand of dv, and as the second group takes them for ds.
  BARACUDA_D void make_weights(Fragments& p16, Scores& s, const Stats* stats, bool cut) const {
    const FarRows<QUERIES, P, Tile> far(p, tile, now, stats - quad);
    Fragments w16;
    if constexpr (TERMS == 0) {
      far.lower(s, 0, static_cast<float>(p.scale));
      weigh_apart<T>(p16, w16, s, stats, c);
    } else {
      const int ahead = now.at * QUERIES + 2 * quad + terms.place() - key;
      if (terms.capped()) weigh_apart<T, true>(p16, w16, s, stats, far, terms, static_cast<float>(ahead));
      else weigh_apart<T, false>(p16, w16, s, stats, far, terms, static_cast<float>(ahead));
    }
    far.template spare<T>(w16, p16, 0, weight_unit), far.template spare<T>(w16, p16, 4, weight_unit);
    if (cut) hide_masked(p16), hide_masked(w16);

    // Pass the weights to the second group
    uint4* const sent = block.weights + threadIdx.x % 128;
    block.sync.weights_empty.wait(steps % 2 ^ 1);
#pragma unroll
    for (int n = 0; n < QUERIES / 16; ++n) sent[n * 128] = uint4{w16[n][0], w16[n][1], w16[n][2], w16[n][3]};
    block.sync.weights_full.arrive_as_warp();
    block.sync.grads_full.wait(steps % 2);
    wgmma_publish();
  }
  // The second group: ds = weights (dP - delta), also to shared memory for dq.
  BARACUDA_D void make_ds(Fragments& ds16, const Scores& dp, const Stats* stats, bool cut, Stage<2> fresh) const {
    const uint4* const sent = block.weights + threadIdx.x % 128;
    block.sync.weights_full.wait(steps % 2);
#pragma unroll
    for (int n = 0; n < QUERIES / 16; ++n) make_ds_of<T>(ds16, n, sent[n * 128], dp, stats);
    block.sync.weights_empty.arrive_as_warp();
    if (cut) hide_masked(ds16);
    block.sync.ds_empty[fresh.index()].wait(fresh.empty_parity());
    const tile::Reader<64, false> to(block.ds + key0 * 64);
#pragma unroll
    for (int n = 0; n < QUERIES / 16; ++n) to.write(ds16[n], 0, 16 * n, fresh.index() * (SCORES * sizeof(T)));
    wgmma_publish();
    block.sync.ds_full[fresh.index()].arrive_as_warp();
  }
  // Starts a unit of partial dq for the tile of queries whose ds are in stage `ds`.
  BARACUDA_D void start_partial_dq(PartialDq& dq, u32 ds, int unit) const {
    wgmma_fence();
    start_dq<T, KEYS>(dq, score + ds * (SCORES / 8), to_keys + unit * (KEYS * 8));
  }
  // Publishes a unit of partial dq to the reducing warps, once they have read what stood there.
  BARACUDA_D void publish_dq(const PartialDq& dq, int unit) const {
    float* const to = block.partials + unit * Block::PARTIAL + warp * (16 * UNIT) + lane_id() * 4;
    block.sync.partial_empty[unit][(steps + 1 + group) % 2].wait(group ^ 1);
#pragma unroll
    for (int n = 0; n < UNIT / 8; ++n) {
      *reinterpret_cast<float4*>(to + n * 128) = float4{dq[n][0], dq[n][1], dq[n][2], dq[n][3]};
    }
    block.sync.partial_full[unit][steps % 2].arrive_as_warp();
  }

  // The steps of the block; acc becomes dv or dk.
  BARACUDA_D void consume(float (&acc)[D / 8][4]) {
    auto& sync = block.sync;
    Scores s;  // of the current step: scores in the first group, dP in the second
    const bool some = tile.sees(now.at);
    sync.keys_full.wait(0);  // even without steps: a late copy would overwrite dk and dv

    // The scores of the first step
    if (some) {
      // stage of step -1, whose ds are nothing: dq of the first step is not read
      if (!weighs) sync.ds_full[0].arrive_as_warp();
      if (!weighs) order.wait();
      await_rows(0);
      start_step(s, 0);
      order.pass();
      wgmma_wait<0>();
      hold(s);
      if (!weighs) sync.grads_empty.arrive_as_warp();
    }
#pragma unroll 1
    while (tile.sees(now.at)) {
      const Stage<2> stage{steps}, next{steps + 1};
      const Stage<2> fresh{steps + 1}, stale{steps};  // ds of this step and of the last

      // Weights, or ds, of this step
      const Stats* const stats = block.stats + (stage.index() * (QUERIES / 2) + quad);
      const bool cut = tile.is_cut(now.at);
      Fragments x16;
      if constexpr (TERMS != 0) {
        if (p.group > 1) terms.enter(tile.b, tile.kv * p.group + now.head);
      }
      if (weighs) make_weights(x16, s, stats, cut);
      else make_ds(x16, s, stats, cut, fresh);
      now.step(p.group, tile);
      sync.ds_full[stale.index()].wait(stale.full_parity());

      // dv, or dk, of this step; partial dq of the last
      order.wait();
      float dq[UNITS][UNIT / 8][4];  // meaningless at the first step; its reader skips it
      hold(x16);
      wgmma_fence();
      add_product<T, 64>(acc, x16, weighs ? grad : query + stage.index() * (TILE / 8));
      start_partial_dq(dq[0], stale.index(), 0);
      wgmma_wait<0>();
      hold(dq[0]);
      hold(acc);
      hold(x16);
      if (weighs) sync.grads_empty.arrive_as_warp();
      else sync.queries_empty[stage.index()].arrive_as_warp();
      start_partial_dq(dq[1], stale.index(), 1);
      publish_dq(dq[0], 0);

      // The scores of the next step
      await_rows(steps + 1);
      start_step(s, next.index());
      order.pass();
      wgmma_wait<1>();
      hold(dq[1]);
      sync.ds_empty[stale.index()].arrive_as_warp();
      publish_dq(dq[1], 1);
      wgmma_wait<0>();
      hold(s);
      if (!weighs) sync.grads_empty.arrive_as_warp();
      ++steps;
    }
    if (some) finish_dq();
  }
  // Partial dq of the last step.
  BARACUDA_D void finish_dq() const {
    const Stage<2> stale{steps};
    float dq[UNITS][UNIT / 8][4];
    block.sync.ds_full[stale.index()].wait(stale.full_parity());
    order.wait();
#pragma unroll
    for (int unit = 0; unit < UNITS; ++unit) {
      start_partial_dq(dq[unit], stale.index(), unit);
      wgmma_wait<0>();
      hold(dq[unit]);
      publish_dq(dq[unit], unit);
    }
    order.pass();
    if (weighs) order.wait();  // as often as the other consumer has passed
  }

  // Writes dv or dk by way of the values or keys.
  BARACUDA_D void store(const float (&acc)[D / 8][4]) const {
    sync_threads<256>(of_consumers);  // all have read keys and values
    T* const rows = weighs ? block.values : block.keys;
    const float factor = weighs ? 1 / weight_unit : static_cast<float>(p.scale);
    tile::put_panels<KEYS * 64>(rows + key0 * 64, acc, {factor, factor});
    sync_threads<128>(of_group + group);
    if (weighs) write_rows(p.dv, p.stride[6], rows, p.d_v, p.wide & 64);
    else write_rows(p.dk, p.stride[5], rows, p.d_k, p.wide & 32);
  }
  // Writes dk or dv from panels in shared memory; by a warpgroup.
  BARACUDA_D void write_rows(void* out, const i64 (&stride)[3], const T* rows, int cols, bool wide) const {
    if (out == nullptr) return;
    T* const to = key_rows<T, KEYS>(out, stride, tile);
#pragma unroll
    for (int col = 0; col < D; col += 64) {
      tile::copy_out<64, 64, 128>(to + col, stride[2], rows + col * KEYS, threadIdx.x % 128, tile.left, cols - col,
                                  wide);
    }
  }
};

}  // namespace attention

template <class T, int D, class Where, int TERMS, bool RISING = false, class P>
BARACUDA_D void flash_gradients_relay(const P& p) {
  using namespace attention;
  using Block = RelayBlock<T, D>;
  using Tile = conditional<RISING, RisingTile, KeyTile>;
  BARACUDA_DYNAMIC_SMEM(T, shared);
  __shared__ typename Block::Barriers sync;
  __shared__ WorkTile<Tile> tile;
  const Block block(shared + (1024 - smem_address(shared) % 1024) % 1024 / sizeof(T), sync);
  if (threadIdx.x == 0) {
    sync.init();
    tile.template claim<Block::QUERIES, Block::KEYS, Where>(p);
  }
  __syncthreads();
  if (Where::surplus && tile.left == 0) return;
  load_keys(block, p, tile);
  const Walk first{tile.start(), 0};

  if (warpgroup() == 0) {
    release_registers<Block::PRODUCER_REGISTERS>();
    if (threadIdx.x < Block::LOADERS) load_queries(block, p, tile, first);
    else reduce_dq(block, p, tile, first);
    return;
  }

  acquire_registers<Block::CONSUMER_REGISTERS>();
  RelayConsumer<Block, WorkTile<Tile>, TERMS, P> consumer(block, p, tile, first);
  float acc[D / 8][4] = {};  // dv or dk
  consumer.consume(acc);
  hold(acc);
  consumer.store(acc);
}

}  // namespace baracuda
