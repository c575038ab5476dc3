// flash_sdpa_backward_pipelined    the gradients of flash_sdpa_backward_mma (formula there) on wgmma with a producer
//   and two consumers, for sm_90a and head_dim up to 128. Causal and window limits, ALiBi and a soft cap; masks and
//   dropout go to flash_sdpa_backward_wgmma, head_dim 256 to flash_sdpa_backward_relay.
//
// Schedule. Blocks are persistent: a block takes one tile of 128 keys after another, in ticket order. It has three
// warpgroups. Two are consumers: each multiplies for 64 of the keys and keeps all columns of their dk and dv in
// registers. The third is the producer, four warps. Its two loading warps (one for q and k, the other for dy and v) run
// up to STAGES tiles of queries ahead and, where shared memory has a second stage of keys, fetch the next tile of keys
// too. Its two reducing warps add the partial dq that consumers leave in shared memory to the sums in global memory,
// when it is the block's turn; flash_finish makes dq of the sums. Consumers write dk and dv to shared memory, from
// where bulk copies store them while the products of the next tile of keys begin.
//
// A step of a consumer: it computes the weights and ds of step n, then waits at the order barrier, which keeps the other
// consumer from starting products, and starts dv and dk of step n, its half of the columns of dq of step n - 1 (both
// consumers have written that ds by then) and the scores of step n + 1. So the exponentials of one consumer overlap the
// products of the other.
//
// Order of sums: dk and dv over tiles of queries from the last to the first, in one accumulator; dq over tiles of keys
// in the order of turns (turns.cuh), unless p.any_order. Measurements: docs/design/attention-backward.md.
#include "attention/dense/flash_sdpa_backward_pipelined.cuh"

namespace baracuda {
namespace attention {

// 16 rows of dk or dv, from key `first` of the work tile on, by a warp: products times a factor. Where rows are whole
// 16-byte pieces (`wide`), put writes them to two places in shared memory, 8 rows of 8 N elements each, and store
// starts their bulk copies, after a bulk_fence and a __syncwarp; else put writes to global memory and store does
// nothing.
template <int KEYS, class T> struct GradientRows {
  T* out;
  i64 stride;
  int rows, cols;
  bool wide;

  BARACUDA_D GradientRows(void* gradient, const i64 (&stride)[3], const KeyTile& tile, int first, int cols, bool wide)
      : out(key_rows<T, KEYS>(gradient, stride, tile, first)), stride(stride[2]),
        rows(gradient == nullptr ? 0 : min(tile.left - first, 16)), cols(cols), wide(wide) {}

  template <int N> BARACUDA_D void put(const float (&x)[N][4], float factor, T* const (&places)[2]) const {
    const float factors[2] = {factor, factor};
    if (wide) put_rows<true, true>(places, 8 * N, 16, 8 * N, x, factors);
    else put_rows<false>({out, out + 8 * stride}, stride, rows, cols, x, factors);
  }
  template <int N> BARACUDA_D void store(T* const (&places)[2]) const {
    const int row = lane_id();
    if (!wide) return;
    // contiguous: two copies, as each that a lane asks for costs 70 cycles
    if (stride == 8 * N && cols == 8 * N && rows == 16) {
      if (row < 2) bulk_store(out + row * (64 * N), row == 0 ? places[0] : places[1], 64 * N * sizeof(T));
    } else if (row < rows) {
      bulk_store(out + row * stride, (row < 8 ? places[0] : places[1]) + row % 8 * (8 * N),
                 static_cast<u32>(cols * sizeof(T)));
    }
  }
  BARACUDA_D void clear() const {
#pragma unroll 1
    for (int n = lane_id(); n < rows * cols; n += warp_size) out[n / cols * stride + n % cols] = T(0.0f);
  }
};

// A consumer warpgroup: its 64 keys of a work tile, lanes as in mma.sync's accumulators with keys along the rows.
template <class Block, int TERMS, class P> struct PipelinedConsumer {
  using T = typename Block::Element;
  using Key = WorkTile<KeyTile>;
  using Stages = typename Block::Stages;
  static constexpr int KEYS = Block::KEYS, QUERIES = Block::QUERIES, TILE = Block::TILE, SCORES = Block::SCORES;
  static constexpr int WIDTH = Block::WIDTH, KV_STAGES = Block::KV_STAGES, D = TILE / QUERIES;
  // dv leaves through the stage of rows of the empty step after the last, for want of room.
  static constexpr bool DV_IN_ROWS = D != 64;
  // ds as left operand of dk stays in registers; else it is read from shared memory.
  static constexpr bool DS_IN_REGISTERS = D == 64;
  // wgmma descriptors of all operands as offsets from the first, in 16-byte units: the right operands read along
  // columns, and (to_…) across them, where panels of 64 columns are QUERIES rows apart.
  static constexpr u64 to_values = KV_STAGES * KEYS * D / 8, to_grads = Block::TO_GRADS / 8, query = 2 * to_values,
                       score = query + 2 * to_grads;
  static constexpr u64 to_queries = query + ((QUERIES * 128 >> 4) - 1 << 16);
  using Scores = float[QUERIES / 8][4];
  using Fragments = u32[QUERIES / 16][4];
  using Gradient = float[D / 8][4];
  using PartialDq = float[WIDTH / 8][4];

  const Block& block;
  const P& p;
  const int group, warp, key0;  // warp: of the consumers' eight; key0: its first key
  const u64 root;
  const OrderBarrier<1> order;
  const tile::Reader<64, false> own_ds;  // the warp's keys
  u32 steps = 0;                         // as the loading warps count them
  const int quad = forgotten(lane_id() % 4);
  const float c, scale;
  TermsOf<TERMS, float, true, P> terms;

  BARACUDA_D PipelinedConsumer(const Block& block, const P& p)
      : block(block), p(p), group(warpgroup() - 1), warp(static_cast<int>(threadIdx.x) / warp_size - 4),
        key0(warp * 16), root(wgmma_operand(block.keys)), order{group}, own_ds(block.ds + key0 * 64),
        c(static_cast<float>(p.scale * 1.4426950408889634)), scale(static_cast<float>(p.scale)),
        terms(p, p.query_len, p.key_len, p.shift) {}

  BARACUDA_D static u64 key_offset(u32 n) {
    return typename Block::KeyStages{n}.index() * static_cast<u64>(KEYS * D / 8);
  }
  // Starts the scores and dP of a step whose rows are loaded; values: offset of the descriptor.
  BARACUDA_D void start_step(Scores& s, Scores& dp, Stages stage, u64 keys, u64 values) const {
    const u64 rows = forgotten(root) + query + stage.index() * (TILE / 8), mine = forgotten(root) + group * (64 * 8);
    wgmma_fence();
    start_scores<T, D, KEYS, QUERIES>(s, mine + keys, rows);
    start_scores<T, D, KEYS, QUERIES>(dp, mine + values, rows + to_grads);
  }

  // What weights and ds of a step need of its rows; read while its scores are computed.
  struct Rows {
    const Stats* stats;  // of the thread's first two queries
    Stats early[2];      // those and the thread's next two
    bool cut, some_far;  // whether anything is masked; whether any row is far
  };
  BARACUDA_D void read_rows(Rows& rows, const Key& tile, const Walk& step, Stages stage) const {
    rows.stats = block.stats + (stage.index() * (QUERIES / 2) + quad);
    rows.early[0] = rows.stats[0], rows.early[1] = rows.stats[4];
    rows.some_far = FarRows<QUERIES, P, KeyTile>::found(rows.stats - quad);
    rows.cut = tile.is_cut(step.at);
  }
  // Weights and ds for the 32 queries from 8 `from` of a step. key: the thread's first.
  BARACUDA_D void make_ds(Fragments& p16, Fragments& ds16, const Scores& s, const Scores& dp, int from,
                          const Rows& rows, const FarRows<QUERIES, P, KeyTile>& far, int key) const {
    if constexpr (TERMS == 0) {
      weigh_and_make_ds<T>(p16, ds16, s, dp, from, rows.early, rows.stats, c);
    } else {
      const int ahead = far.step.at * QUERIES + 2 * quad + terms.place() - key;
      if (terms.capped())
        weigh_and_make_ds<T, true>(p16, ds16, s, dp, from, rows.stats, far, terms, static_cast<float>(ahead));
      else weigh_and_make_ds<T, false>(p16, ds16, s, dp, from, rows.stats, far, terms, static_cast<float>(ahead));
    }
    far.template spare<T>(ds16, p16, from);
    if (rows.cut) {
      const Mask mask = mask_at<QUERIES, KEYS>(p, far.key, far.step);
      hide(p16, from, key0, mask);
      hide(ds16, from, key0, mask);
    }
  }
  BARACUDA_D static void put_ds(const tile::Reader<64, false>& to, const Fragments& ds16, int from, u32 stage) {
#pragma unroll
    for (int n = from / 2; n < from / 2 + 2; ++n) to.write(ds16[n], 0, 16 * n, stage * (SCORES * sizeof(T)));
  }

  // Starts the group's columns of partial dq for the tile of queries whose ds are in stage `ds`.
  BARACUDA_D void start_partial_dq(PartialDq& dq, u32 ds, u64 keys) const {
    const u64 rows = forgotten(root) + score + ds * (SCORES / 8),
              to_keys = forgotten(root) + keys + group * (WIDTH == 64 ? KEYS * 8 : 4);
    wgmma_fence();
    start_dq<T, KEYS>(dq, rows, to_keys);
  }
  // Writes partial dq for the reducing warps, once they have read what stood there; `found`: whether that is known
  // already.
  BARACUDA_D void put_dq(const PartialDq& dq, Stage<2> before, bool found) const {
    float* const to = block.partials + (group * 4 + warp % 4) * (16 * WIDTH) + lane_id() * 4;
    block.sync.partial_empty[group][before.index()].wait(before.full_parity(), found);
#pragma unroll
    for (int n = 0; n < WIDTH / 8; ++n) {
      *reinterpret_cast<float4*>(to + n * 128) = float4{dq[n][0], dq[n][1], dq[n][2], dq[n][3]};
    }
  }

  BARACUDA_D GradientRows<KEYS, T> rows_of_dk(const Key& tile) const {
    return {p.dk, p.stride[5], tile, key0, p.d_k, bool(p.wide & 32)};
  }
  BARACUDA_D GradientRows<KEYS, T> rows_of_dv(const Key& tile) const {
    return {p.dv, p.stride[6], tile, key0, p.d_v, bool(p.wide & 64)};
  }
  // Writes dk and dv to the warp's rows of the first stage of ds and, SCORES further, of the second, or of the empty
  // step's stage of rows; and starts the bulk copies that store them.
  BARACUDA_D void store(const Gradient& dk, const Gradient& dv, const Key& tile) const {
    T* const own = block.ds + key0 * 64;
    T* const rows_stage = (group == 0 ? block.queries : block.grads) + Stages{steps}.index() * TILE + key0 % 64 * D;
    T* const to_dk[2] = {own, own + (DV_IN_ROWS ? SCORES : 8 * D)};
    T* const to_dv[2] = {DV_IN_ROWS ? rows_stage : own + SCORES, (DV_IN_ROWS ? rows_stage : own + SCORES) + 8 * D};
    const auto of_dk = rows_of_dk(tile), of_dv = rows_of_dv(tile);
    of_dk.put(dk, scale, to_dk);
    of_dv.put(dv, 1.0f, to_dv);
    bulk_fence();
    __syncwarp();
    of_dk.template store<D / 8>(to_dk);
    of_dv.template store<D / 8>(to_dv);
    bulk_commit();
  }

  // Work tile n of the block.
  BARACUDA_D void take(const Key& tile, u32 n) {
    const typename Block::KeyStages stage{n};
    if constexpr (TERMS != 0) {
      terms.settle(tile.of);
      terms.enter(tile.b, tile.kv * p.group);
    }
    const int key = static_cast<int>(tile.tile) * KEYS + key0 + lane_id() / 4;
    const Walk now{tile.last, 0};
    block.sync.values_full[stage.index()].wait(stage.full_parity());
    block.sync.keys_full[stage.index()].wait(stage.full_parity());
    if (now.at >= tile.first) {
      consume(tile, n, key, now);
    } else {  // no query sees its keys
      block.sync.values_empty[stage.index()].arrive_as_warp();
      block.sync.keys_empty[stage.index()].arrive_as_warp();
      rows_of_dk(tile).clear();
      rows_of_dv(tile).clear();
    }
  }
  // The steps of a work tile. key: the thread's first.
  BARACUDA_D void consume(const Key& tile, u32 n, int key, Walk now) {
    auto& sync = block.sync;
    const typename Block::KeyStages kv_stage{n};
    Gradient dk = {}, dv = {};
    Scores s, dp;  // of the current step
    Rows rows;
    bool more = true;

    // The scores of the first step
    const Stages first{steps};
    sync.ds_full[steps % 2].arrive_as_warp();  // of step -1, whose ds are nothing: dq of the first step is not read
    if (group == 1) order.wait();
    sync.rows_full[first.index()].wait(first.full_parity());
    wgmma_publish();
    start_step(s, dp, first, key_offset(n), to_values + key_offset(n));
    order.pass();
    read_rows(rows, tile, now, first);
    wgmma_wait<0>();
    hold(s);
    hold(dp);

    // The stages from which the last work tile's gradients were stored are free
    bulk_wait_read<0>();
    __syncwarp();
    if (DV_IN_ROWS && steps != 0) sync.rows_empty[Stages{steps - 1}.index()].arrive_as_warp();

#pragma unroll 1
    do {
      const Stages stage{steps}, next{steps + 1};
      // ds of this step, of the last, and dq before that
      const Stage<2> fresh{steps + 1}, stale{steps}, before{steps - 1};

      // Weights and ds of this step
      Fragments p16, ds16;
      const bool ds_read = sync.ds_empty[fresh.index()].complete(fresh.empty_parity());
      tile::Reader<64, false> to = own_ds;
      to.address = static_cast<u32>(forgotten(static_cast<int>(to.address)));  // kept, the addresses of rows spill
      const FarRows<QUERIES, P, KeyTile> far(p, tile, now, rows.stats - quad, rows.some_far);
      if constexpr (TERMS == 0) far.lower(s, 0, scale);
      else if (p.group > 1) terms.enter(tile.b, tile.kv * p.group + now.head);
      make_ds(p16, ds16, s, dp, 0, rows, far, key);
      sync.ds_empty[fresh.index()].wait(fresh.empty_parity(), ds_read);
      put_ds(to, ds16, 0, fresh.index());
      make_ds(p16, ds16, s, dp, 4, rows, far, key);
      const bool rows_in = sync.rows_full[next.index()].complete(next.full_parity());
      const bool ds_in = sync.ds_full[stale.index()].complete(stale.full_parity());
      put_ds(to, ds16, 4, fresh.index());
      now.step(p.group);
      more = now.at >= tile.first;
      if (KV_STAGES == 1 && !more) sync.values_empty[0].arrive_as_warp();

      // Wait for the next step's rows and the last step's ds
      sync.rows_full[next.index()].wait(next.full_parity(), rows_in);
      wgmma_publish();  // ds, and rows that cp.async brought
      sync.ds_full[fresh.index()].arrive_as_warp();
      sync.ds_full[stale.index()].wait(stale.full_parity(), ds_in);

      // dv and dk of this step, partial dq of the last
      order.wait();
      const bool dq_read = sync.partial_empty[group][before.index()].complete(before.full_parity());
      PartialDq dq;  // meaningless at the first step; its reader skips it
      const u64 queries = forgotten(root) + to_queries + stage.index() * (TILE / 8);
      hold(p16);
      wgmma_fence();
      add_product<T, D>(dv, p16, queries + to_grads);
      start_partial_dq(dq, stale.index(), key_offset(n));
      if constexpr (DS_IN_REGISTERS) {
        hold(ds16);
        wgmma_fence();
        add_product<T, D>(dk, ds16, queries);
      } else {
        const u64 ds = forgotten(root) + score + fresh.index() * (SCORES / 8) + group * (64 * 8);
        wgmma_fence();
        add_product<T>(dk, ds, queries);
      }
      wgmma_wait<1>();
      hold(dq);
      hold(p16);
      sync.ds_empty[stale.index()].arrive_as_warp();
      put_dq(dq, before, dq_read);

      // The scores of the next step; past the last again the keys: values may be the next work tile's already
      start_step(s, dp, next, key_offset(n), KV_STAGES == 2 || more ? to_values + key_offset(n) : 0);
      order.pass();
      read_rows(rows, tile, now, next);
      sync.partial_full[group][steps % 2].arrive_as_warp();
      wgmma_wait<0>();
      hold(s);
      hold(dp);
      if constexpr (DS_IN_REGISTERS) hold(ds16);
      sync.rows_empty[stage.index()].arrive_as_warp();
      ++steps;
    } while (more);

    finish_dq(n);
    hold(dk);
    hold(dv);
    sync.ds_empty[steps % 2].wait(Stage<2>{steps}.full_parity());
    store(dk, dv, tile);
    ++steps;
  }
  // Partial dq of a work tile's last step, after which its keys' stage is free.
  BARACUDA_D void finish_dq(u32 n) const {
    auto& sync = block.sync;
    const typename Block::KeyStages kv_stage{n};
    const Stage<2> stale{steps};  // holds ds of the last step
    PartialDq dq;
    if (!DV_IN_ROWS) sync.rows_empty[Stages{steps}.index()].arrive_as_warp();
    sync.ds_full[stale.index()].wait(stale.full_parity());
    order.wait();
    start_partial_dq(dq, stale.index(), key_offset(n));
    wgmma_wait<0>();
    hold(dq);
    sync.keys_empty[kv_stage.index()].arrive_as_warp();
    if (KV_STAGES == 2) sync.values_empty[kv_stage.index()].arrive_as_warp();
    sync.ds_empty[stale.index()].arrive_as_warp();
    put_dq(dq, {steps - 1}, false);
    sync.partial_full[group][steps % 2].arrive_as_warp();
    order.pass();
    if (group == 0) order.wait();  // as often as the other consumer has passed
  }
};

}  // namespace attention

template <class T, int D, int STAGES, class Where, int TERMS, class P>
BARACUDA_D void flash_gradients_pipelined(const P& p) {
  using namespace attention;
  using Block = PipelinedBlock<T, D, STAGES, Where>;
  BARACUDA_DYNAMIC_SMEM(T, shared);
  __shared__ typename Block::Barriers sync;
  __shared__ typename Block::Work work;
  const Block block(shared + (1024 - smem_address(shared) % 1024) % 1024 / sizeof(T), sync, work);
  if (threadIdx.x == 0) work.init(Block::WARPS + 4), sync.init();
  __syncthreads();

  if (warpgroup() == 0) {
    release_registers<Block::PRODUCER_REGISTERS>();
    if (threadIdx.x < Block::LOADERS) load_tiles(block, p);
    else reduce_dq(block, p);
    return;
  }

  acquire_registers<Block::CONSUMER_REGISTERS>();
  PipelinedConsumer<Block, TERMS, P> consumer(block, p);
#pragma unroll 1
  for (u32 n = 0;; ++n) {
    const auto& tile = work.await(n);
    if (tile.left < 0) break;
    consumer.take(tile, n);
    work.release(n);
  }
}

}  // namespace baracuda
