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
// A step of a consumer: it computes the exponentials of step n, then enters a window that excludes the other consumer
// and there starts dv and dk of step n, its half of the columns of dq of step n - 1 (both consumers have written that
// ds by then) and the scores of step n + 1. So the exponentials of one consumer overlap the products of the other.
//
// Order of sums: dk and dv over tiles of queries from the last to the first, in one accumulator; dq over tiles of keys
// in the order of turns (turns.cuh), unless p.any_order. Measurements: docs/design/attention-backward.md.
#include "attention/dense/flash_sdpa_backward_server.cuh"
#include <baracuda/opaque.cuh>
#include <baracuda/wgmma.cuh>

namespace baracuda {
namespace attention {

// The queue of a block's work items (tiles of keys), in ticket order. One thread claims items; each reading warp waits
// for item n and releases it when done.
template <int QUERIES, int KEYS, class Where> struct ItemQueue {
  static constexpr u32 SLOTS = 3;
  Item<KeyTile> items[SLOTS];
  Barrier full[SLOTS], empty[SLOTS];

  BARACUDA_D void init(u32 readers) {
    for (u32 n = 0; n < SLOTS; ++n) full[n].init(1), empty[n].init(readers);
  }
  template <class P> BARACUDA_D void produce(u32 n, const P& p) {
    const Stage<SLOTS> slot{n};
    empty[slot.index()].wait(slot.empty_parity());
    items[slot.index()].template claim<QUERIES, KEYS, Where>(p);
    full[slot.index()].arrive();
  }
  BARACUDA_D const Item<KeyTile>& await(u32 n) {
    const Stage<SLOTS> slot{n};
    full[slot.index()].wait(slot.full_parity());
    return items[slot.index()];
  }
  BARACUDA_D void release(u32 n) { empty[n % SLOTS].arrive_as_warp(); }
};

// 16 rows of dk or dv, from key `first` of the block on, by a warp: products times a factor. Where rows are whole
// 16-byte pieces (`wide`), put writes them to two places in shared memory, 8 rows of 8 N elements each, and store
// starts their bulk copies, after a bulk_fence and a __syncwarp; else put writes to global memory and store does
// nothing.
template <int KEYS, class T> struct GradientRows {
  T* out;
  i64 stride;
  int rows, cols;
  bool wide;

  BARACUDA_D GradientRows(void* gradient, const i64 (&stride)[3], const KeyTile& block, int first, int cols, bool wide)
      : out(rows_of<T>(gradient, stride, block.b, block.kv,
                       block.of.key_row + static_cast<i64>(block.tile) * KEYS + first)),
        stride(stride[2]), rows(gradient == nullptr ? 0 : min(block.left - first, 16)), cols(cols), wide(wide) {}

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

}  // namespace attention

template <class T, int D, int STAGES, class Where, int TERMS, class P>
BARACUDA_D void flash_gradients_pipelined(const P& p) {
  using namespace attention;
  constexpr int LOADERS = 64, GROUPS = 2, WARPS = 4 * GROUPS, KEYS = 64 * GROUPS, QUERIES = 64;
  constexpr int TILE = QUERIES * D, SCORES = KEYS * QUERIES, WIDTH = D / GROUPS;  // columns of dq of a consumer
  // registers a thread; 168 at launch
  constexpr int PRODUCER_REGISTERS = D == 64 ? 56 : 40, CONSUMER_REGISTERS = (3 * 168 - PRODUCER_REGISTERS) / 2;
  constexpr int KV_STAGES = D == 64 ? 2 : 1;  // stages of keys and values
  // dv leaves through the stage of rows of the empty step after the last, for want of room
  constexpr bool DV_IN_ROWS = D != 64;
  // ds as left operand of dk stays in registers; else it is read from shared memory
  constexpr bool DS_IN_REGISTERS = D == 64;
  // in a wgmma descriptor: from 16 elements of k to the next, along rows and across them
  constexpr u64 within = 32 >> 4, across = 2048 >> 4;
  enum Meeting { of_window = 1 };  // named barriers
  constexpr u32 BYTES =
      sizeof(T) * (2 * KV_STAGES * KEYS * D + 2 * STAGES * TILE + 2 * SCORES) + 4 * TILE + 8 * STAGES * QUERIES + 1024;
  static_assert(BYTES + sizeof(ItemQueue<QUERIES, KEYS, Where>) + sizeof(Barrier) * (4 * KV_STAGES + 2 * STAGES + 12) <=
                227 << 10);
  BARACUDA_DYNAMIC_SMEM(T, shared);
  T* const keys = shared + (1024 - smem_address(shared) % 1024) % 1024 / sizeof(T);  // [KV_STAGES][PANELS][KEYS][64]
  T* const values = keys + KV_STAGES * KEYS * D;                                     // same layout
  T* const queries = values + KV_STAGES * KEYS * D;                                  // [STAGES][PANELS][QUERIES][64]
  T* const grads = queries + STAGES * TILE;                                          // same layout: dy
  T* const scores = grads + STAGES * TILE;                            // [2][KEYS][QUERIES]: ds, transposed
  float* const part = reinterpret_cast<float*>(scores + 2 * SCORES);  // [GROUPS][QUERIES][WIDTH]: partial dq
  Stats* const stats = reinterpret_cast<Stats*>(part + TILE);         // [STAGES][QUERIES / 2]
  __shared__ Barrier keys_full[KV_STAGES], keys_empty[KV_STAGES], values_full[KV_STAGES], values_empty[KV_STAGES];
  __shared__ Barrier rows_full[STAGES], rows_empty[STAGES];
  // One for even steps and one for odd ones, so that each reducing warp waits for its own steps only.
  __shared__ Barrier ds_full[2], ds_empty[2], part_full[GROUPS][2], part_empty[GROUPS][2];
  __shared__ ItemQueue<QUERIES, KEYS, Where> items;

  if (threadIdx.x == 0) {
    items.init(WARPS + 4);
    for (int n = 0; n < KV_STAGES; ++n) {
      keys_full[n].init(warp_size), keys_empty[n].init(WARPS);
      values_full[n].init(warp_size), values_empty[n].init(WARPS);
    }
    for (int n = 0; n < STAGES; ++n) rows_full[n].init(LOADERS), rows_empty[n].init(WARPS);
    for (int n = 0; n < 2; ++n) ds_full[n].init(WARPS), ds_empty[n].init(WARPS);
    for (int n = 0; n < 2 * GROUPS; ++n) part_full[n / 2][n % 2].init(4), part_empty[n / 2][n % 2].init(1);
  }
  __syncthreads();
  u32 steps = 0;  // counts one step more for each item that has steps: the empty step after its last

  if (warpgroup() == 0) {
    release_registers<PRODUCER_REGISTERS>();
    if (threadIdx.x < LOADERS) {
#pragma unroll 1
      for (u32 n = 0;; ++n) {
        if (threadIdx.x == 0) items.produce(n, p);
        const auto& block = items.await(n);
        if (block.left < 0) break;
        // The second loading warp has values and dy.
        const auto load_block = [&](bool other) {
          const Stage<KV_STAGES> kv_stage{n};
          const bool wide = p.wide & (other ? 4 : 2);
          (other ? values_empty : keys_empty)[kv_stage.index()].wait(kv_stage.empty_parity());
          const auto& stride = p.stride[other ? 2 : 1];
          const i64 first = block.of.key_row + static_cast<i64>(block.tile) * KEYS;
          const T* const from = rows_of<T>(other ? p.v : p.k, stride, block.b, block.kv, first);
          T* const to = (other ? values : keys) + kv_stage.index() * (KEYS * D);
          constexpr int ONCE = 4096 / D;  // more rows at a time would take more registers
#pragma unroll 1
          for (int r = 0; r < KEYS; r += ONCE) {
            tile::copy_as_warp<ONCE, D, KEYS>(to + r * 64, from + r * stride[2], stride[2], block.left - r,
                                              other ? p.d_v : p.d_k, wide);
          }
          (other ? values_full : keys_full)[kv_stage.index()].arrive_when_copied(wide);
        };
        Walk now{block.last, 0};
        bool more = true;
#pragma unroll 1
        for (u32 count = 1; more; ++count) {  // the steps and, after them, the empty one
          // recomputed each time: kept, it would hold registers
          const bool other = forgotten(static_cast<int>(threadIdx.x)) >= warp_size;
          more = now.at >= block.first;
          if (more || count != 1) {
            const Stage<STAGES> stage{steps++};
            const u32 at = stage.index();
            rows_empty[at].wait(stage.empty_parity());
            if (more) {
              const i64 q0 = static_cast<i64>(now.at) * QUERIES;
              const u32 h = block.kv * p.group + now.head;
              if (!other) {
                const i64 row = (block.b * p.num_heads + h) * p.padded + block.of.before * QUERIES + q0;
                const Stats* const from = static_cast<const Stats*>(p.stats) + row / 2;
                cp_async_16(stats + at * (QUERIES / 2) + threadIdx.x, from + threadIdx.x);
              }
              const auto& stride = p.stride[other ? 3 : 0];
              const T* const from = rows_of<T>(other ? p.dy : p.q, stride, block.b, h, block.of.query_row + q0);
              const bool wide = p.wide & (other ? 8 : 1);
              tile::copy_as_warp<QUERIES, D>((other ? grads : queries) + at * TILE, from, stride[2],
                                             inside<QUERIES>(block.of.query_len, q0), other ? p.d_v : p.d_k, wide);
              rows_full[at].arrive_when_copied(wide);
              now.step(p.group);
            } else {
              rows_full[at].arrive();
            }
          }
          // with one stage of keys they are needed until the last step
          const u32 before = other || KV_STAGES == 2 ? 1 : 2;
          if (count == before || (!more && count < before)) load_block(other);
        }
        items.release(n);
      }
    } else {
      const u32 self = threadIdx.x / warp_size % 2;  // the two reducing warps alternate
#pragma unroll 1
      for (u32 n = 0;; ++n) {
        const auto& block = items.await(n);
        if (block.left < 0) break;
        Walk now{block.last, 0};
        const bool some = now.at >= block.first;
        if (some && steps % 2 != self) {
          const Stage<2> place{steps};
          // the empty partial dq that consumers publish before the first step
          for (int half = 0; half < GROUPS; ++half) {
            part_full[half][place.index()].wait(place.full_parity());
            part_empty[half][place.index()].arrive_as_warp();
          }
        }
#pragma unroll 1
        for (; now.at >= block.first; now.step(p.group), ++steps) {
          if (steps % 2 != self) continue;
          const Turn<QUERIES, KEYS, TILE, P, KeyTile> turn(p, block, now);
          const Stage<2> place{steps + 1};
#pragma unroll 1
          for (int half = 0; half < GROUPS; ++half) {
            part_full[half][place.index()].wait(place.full_parity());
            if (turn.adds) {
              turn.add(half * (QUERIES * WIDTH), part + half * (QUERIES * WIDTH), QUERIES * WIDTH);
              bulk_wait_read<0>();
            }
            part_empty[half][place.index()].arrive_as_warp();
          }
          turn.pass();
        }
        steps += some;
        items.release(n);
      }
    }
    return;
  }

  acquire_registers<CONSUMER_REGISTERS>();
  const int group = warpgroup() - 1, warp = static_cast<int>(threadIdx.x) / warp_size - 4, key0 = warp * 16;
  // wgmma descriptors of all operands as offsets from the first, in 16-byte units: the right operands read along
  // columns, and (to_…) across them, where panels of 64 columns are QUERIES rows apart.
  constexpr u64 to_values = KV_STAGES * KEYS * D / 8, to_grads = STAGES * TILE / 8, query = 2 * to_values,
                score = query + 2 * to_grads;
  constexpr u64 to_queries = query + ((QUERIES * 128 >> 4) - 1 << 16);
  const u64 root = wgmma_operand(keys);
  u32 n = 0;  // index of the item
  const auto kv_offset = [](u32 n) { return Stage<KV_STAGES>{n}.index() * static_cast<u64>(KEYS * D / 8); };
  const int quad = forgotten(lane_id() % 4);
  const float c = static_cast<float>(p.scale * 1.4426950408889634), scale = static_cast<float>(p.scale);
  using Added = TermsOf<TERMS, float, true, P>;
  Added terms(p, p.query_len, p.key_len, p.shift);

  const auto begin_window = [&] { sync_threads<128 * GROUPS>(of_window + group); };
  const auto end_window = [&] { arrive_threads<128 * GROUPS>(of_window + (group ^ 1)); };
  const tile::Reader<64, false> mine_of_ds(scores + key0 * 64);
  // x y^T over all columns: the group's 64 keys by all queries of a tile.
  const auto start_scores = [&](float(&to)[QUERIES / 8][4], u64 x, u64 y) {
#pragma unroll
    for (int d = 0; d < D; d += 16) {
      const u64 step = d % 64 / 16 * within;
      wgmma<T, false, false>(to, x + d / 64 * (KEYS * 8) + step, y + d / 64 * (QUERIES * 8) + step, d != 0);
    }
    wgmma_commit();
  };
  // to += x y over the queries of a tile, x in registers or not.
  const auto add_product = [&](float(&to)[D / 8][4], const auto& x, u64 y) {
    if constexpr (!is_same<decltype(x), const u64&>) hold(x);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < QUERIES; i += 16) {
      if constexpr (is_same<decltype(x), const u64&>)
        wgmma<T, false, true>(to, x + i / 16 * within, y + i / 16 * across, 1);
      else wgmma<T, true>(to, x[i / 16], y + i / 16 * across, 1);
    }
    wgmma_commit();
  };
  // Starts the group's columns of dq for the tile of queries whose ds are in stage `at`.
  const auto start_dq = [&](float(&dq)[WIDTH / 8][4], u32 at) {
    const u64 ds = forgotten(root) + score + at * (SCORES / 8),
              to_keys = forgotten(root) + kv_offset(n) + group * (WIDTH == 64 ? KEYS * 8 : 4);
    wgmma_fence();
#pragma unroll
    for (int j = 0; j < KEYS; j += 16) {
      wgmma<T, true, true>(dq, ds + j / 16 * across, to_keys + j / 16 * across, j != 0);
    }
    wgmma_commit();
  };
  // Publishes partial dq to the reducing warps, once they have read what stood there; `found`: whether that is known
  // already.
  const auto publish_dq = [&](const float(&dq)[WIDTH / 8][4], Stage<2> before, bool found) {
    float* const to = part + (group * 4 + warp % 4) * (16 * WIDTH) + lane_id() * 4;
    part_empty[group][before.index()].wait(before.full_parity(), found);
#pragma unroll
    for (int n = 0; n < WIDTH / 8; ++n) {
      *reinterpret_cast<float4*>(to + n * 128) = float4{dq[n][0], dq[n][1], dq[n][2], dq[n][3]};
    }
  };

#pragma unroll 1
  for (;; ++n) {
    const auto& block = items.await(n);
    if (block.left < 0) break;
    const Stage<KV_STAGES> kv_stage{n};
    if constexpr (TERMS != 0) terms.enter(block.b, block.kv * p.group);
    const int j = static_cast<int>(block.tile) * KEYS + key0 + lane_id() / 4;
    Walk now{block.last, 0};
    const auto of_dk = [&] { return GradientRows<KEYS, T>(p.dk, p.stride[5], block, key0, p.d_k, p.wide & 32); };
    const auto of_dv = [&] { return GradientRows<KEYS, T>(p.dv, p.stride[6], block, key0, p.d_v, p.wide & 64); };
    values_full[kv_stage.index()].wait(kv_stage.full_parity());
    keys_full[kv_stage.index()].wait(kv_stage.full_parity());
    if (now.at >= block.first) {
      float dk[D / 8][4], dv[D / 8][4];
#pragma unroll
      for (int n = 0; n < D / 8; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) dk[n][e] = dv[n][e] = 0.0f;
      }
      float s[QUERIES / 8][4], ds[QUERIES / 8][4];
      const auto start_step = [&](Stage<STAGES> stage, u64 values) {  // when rows are loaded
        const u64 rows = forgotten(root) + query + stage.index() * (TILE / 8),
                  mine = forgotten(root) + group * (64 * 8);
        wgmma_fence();
        start_scores(s, mine + kv_offset(n), rows);
        start_scores(ds, mine + values, rows + to_grads);
      };
      // Read for the next step while its scores are computed.
      const Stats* stat = stats;  // of the thread's first two queries
      Stats early[2];             // those and the thread's next two
      // whether anything is masked, any row is far, there is a next step
      bool cut = false, some_far = false, more = true;
      const auto look_up = [&](Stage<STAGES> stage) {
        stat = stats + (stage.index() * (QUERIES / 2) + quad);
        early[0] = stat[0], early[1] = stat[4];
        some_far = FarRows<QUERIES, P, KeyTile>::found(stat - quad);
        cut = now.at < block.clear[0] || now.at > block.clear[1];
      };

      const Stage<STAGES> first{steps};
      ds_full[steps % 2].arrive_as_warp();  // stage of step -1, whose ds are nothing: dq of the first step is not read
      if (group == 1) begin_window();
      rows_full[first.index()].wait(first.full_parity());
      wgmma_publish();
      start_step(first, to_values + kv_offset(n));
      end_window();
      look_up(first);
      wgmma_wait<0>();
      hold(s);
      hold(ds);
      bulk_wait_read<0>();  // the bulk copies of the last item's gradients
      __syncwarp();
      if (DV_IN_ROWS && steps != 0) rows_empty[Stage<STAGES>{steps - 1}.index()].arrive_as_warp();
#pragma unroll 1
      do {  // s and ds hold the products of this step
        const Stage<STAGES> stage{steps}, next{steps + 1};
        // ds of this step, of the last, and dq before that
        const Stage<2> fresh{steps + 1}, stale{steps}, before{steps - 1};
        u32 p16[QUERIES / 16][4], ds16[QUERIES / 16][4];
        const bool ds_read = ds_empty[fresh.index()].complete(fresh.empty_parity());
        auto to = mine_of_ds;
        // recomputed: kept, the addresses of rows spill
        to.address = static_cast<u32>(forgotten(static_cast<int>(to.address)));
        const FarRows<QUERIES, P, KeyTile> far(p, block, now, stat - quad, some_far);
        if constexpr (TERMS == 0) far.lower(s, 0, scale);
        const auto weigh = [&](int from) {
          if constexpr (TERMS == 0) {
            weigh_and_make_ds<T>(p16, ds16, s, ds, from, early, stat, c);
          } else {
            const int ahead = now.at * QUERIES + 2 * quad + static_cast<int>(p.shift) - j;
            if (terms.capped())
              weigh_and_make_ds<T, true>(p16, ds16, s, ds, from, stat, far, terms, static_cast<float>(ahead));
            else weigh_and_make_ds<T, false>(p16, ds16, s, ds, from, stat, far, terms, static_cast<float>(ahead));
          }
          far.template spare<T>(ds16, p16, from);
          if (cut) {
            const Mask mask = mask_at<QUERIES, KEYS>(p, block, now);
            hide(p16, from, key0, mask);
            hide(ds16, from, key0, mask);
          }
        };
        const auto put_ds = [&](int from) {
#pragma unroll
          for (int n = from / 2; n < from / 2 + 2; ++n)
            to.write(ds16[n], 0, 16 * n, fresh.index() * (SCORES * sizeof(T)));
        };
        if constexpr (TERMS != 0) {
          if (p.group > 1) terms.enter(block.b, block.kv * p.group + now.head);
        }
        weigh(0);
        ds_empty[fresh.index()].wait(fresh.empty_parity(), ds_read);
        put_ds(0);
        weigh(4);
        const bool rows_in = rows_full[next.index()].complete(next.full_parity());
        const bool ds_in = ds_full[stale.index()].complete(stale.full_parity());
        put_ds(4);
        now.step(p.group);
        more = now.at >= block.first;
        if (KV_STAGES == 1 && !more) values_empty[0].arrive_as_warp();
        rows_full[next.index()].wait(next.full_parity(), rows_in);
        wgmma_publish();  // ds, and rows that cp.async brought
        ds_full[fresh.index()].arrive_as_warp();
        ds_full[stale.index()].wait(stale.full_parity(), ds_in);
        begin_window();
        const bool part_read = part_empty[group][before.index()].complete(before.full_parity());
        float dq[WIDTH / 8][4];  // meaningless at the first step; its reader skips it
        const u64 rows = forgotten(root) + to_queries + stage.index() * (TILE / 8);
        add_product(dv, p16, rows + to_grads);
        start_dq(dq, stale.index());
        if constexpr (DS_IN_REGISTERS) add_product(dk, ds16, rows);
        else add_product(dk, forgotten(root) + score + fresh.index() * (SCORES / 8) + group * (64 * 8), rows);
        wgmma_wait<1>();
        hold(dq);
        hold(p16);
        ds_empty[stale.index()].arrive_as_warp();
        publish_dq(dq, before, part_read);
        // past the last step of keys again: values may be the next item's already
        start_step(next, KV_STAGES == 2 || more ? to_values + kv_offset(n) : 0);
        end_window();
        look_up(next);
        part_full[group][steps % 2].arrive_as_warp();
        wgmma_wait<0>();
        hold(s);
        hold(ds);
        if constexpr (DS_IN_REGISTERS) hold(ds16);
        rows_empty[stage.index()].arrive_as_warp();
        ++steps;
      } while (more);
      const Stage<2> stale{steps};  // holds ds of the last step
      float dq[WIDTH / 8][4];
      if (!DV_IN_ROWS) rows_empty[Stage<STAGES>{steps}.index()].arrive_as_warp();
      ds_full[stale.index()].wait(stale.full_parity());
      begin_window();
      start_dq(dq, stale.index());
      wgmma_wait<0>();
      hold(dq);
      keys_empty[kv_stage.index()].arrive_as_warp();
      if (KV_STAGES == 2) values_empty[kv_stage.index()].arrive_as_warp();
      ds_empty[stale.index()].arrive_as_warp();
      publish_dq(dq, {steps - 1}, false);
      part_full[group][steps % 2].arrive_as_warp();
      end_window();
      if (group == 0) begin_window();  // a window for each that the other consumer ended

      hold(dk);
      hold(dv);
      ds_empty[stale.index()].wait(stale.full_parity());
      // the warp's rows of the first stage of ds; those of the second stand SCORES further
      T* const own = scores + key0 * 64;
      T* const rows_stage = (group == 0 ? queries : grads) + Stage<STAGES>{steps}.index() * TILE + key0 % 64 * D;
      T* const to_dk[2] = {own, own + (DV_IN_ROWS ? SCORES : 8 * D)};
      T* const to_dv[2] = {DV_IN_ROWS ? rows_stage : own + SCORES, (DV_IN_ROWS ? rows_stage : own + SCORES) + 8 * D};
      const auto rows_of_dk = of_dk(), rows_of_dv = of_dv();
      rows_of_dk.put(dk, scale, to_dk);
      rows_of_dv.put(dv, 1.0f, to_dv);
      bulk_fence();
      __syncwarp();
      rows_of_dk.template store<D / 8>(to_dk);
      rows_of_dv.template store<D / 8>(to_dv);
      bulk_commit();
      ++steps;
    } else {
      values_empty[kv_stage.index()].arrive_as_warp();
      keys_empty[kv_stage.index()].arrive_as_warp();
      of_dk().clear();
      of_dv().clear();
    }
    items.release(n);
  }
}

}  // namespace baracuda
