// flash_sdpa_backward_relay    the gradients of flash_sdpa_backward_mma (formula there) for head_dim 256 on sm_90a,
//   where two consumer warpgroups have no registers for dk and dv of 64 keys each. Masks and dropout go to
//   flash_sdpa_backward_wgmma.
//
// Schedule. A block has one tile of 64 keys and ends with it. Both consumers work on the same 64 keys: the first
// computes the weights and owns dv, the second computes ds and owns dk. Each has its left operand in registers, as its
// own scores left it. The first passes weights to the second through shared memory, the second passes ds to both for
// dq, of which each consumer computes half of the columns. The producer warpgroup and the windows that keep consumers'
// products apart are those of flash_sdpa_backward_pipelined. Shared memory holds two stages of queries and one of dy.
//
// RISING (causal, fixed order of sums): blocks of most heads take tiles of keys from the last on and walk queries from
// the diagonal up. Each begins where it is the first to add to dq, and then follows one step behind the block before
// it, so that none waits. The other heads go last and walk down, longest blocks first.
//
// Order of sums: dk and dv over tiles of queries in walking order, in one accumulator; dq over tiles of keys in the
// order of turns, unless p.any_order. Measurements: docs/design/attention-backward.md.
#include "attention/dense/flash_sdpa_backward_server.cuh"
#include <baracuda/opaque.cuh>
#include <baracuda/wgmma.cuh>

namespace baracuda {
namespace attention {

// Starts copies of the block's keys and values to panels in shared memory; called by all threads.
template <int KEYS, int D, int THREADS, class T, class P>
BARACUDA_D void load_keys(T* keys, T* values, Barrier& full, const KeyTile& block, const P& p) {
  const auto load = [&](T* tile, const void* from, const i64(&stride)[3], int cols, bool wide) {
    const T* const x =
        rows_of<T>(from, stride, block.b, block.kv, block.of.key_row + static_cast<i64>(block.tile) * KEYS);
    tile::copy_panels<KEYS, D, THREADS>(tile, x, stride[2], block.left, cols, wide);
  };
  load(keys, p.k, p.stride[1], p.d_k, p.wide & 2);
  load(values, p.v, p.stride[2], p.d_v, p.wide & 4);
  full.arrive_when_copied((p.wide & 6) == 6);
}

// Writes 64 rows of dk or dv, from key `first` of the block on, from panels in shared memory to global memory; by a
// warpgroup.
template <int KEYS, int D, class T>
BARACUDA_D void write_rows(void* out, const i64 (&stride)[3], const T* tile, const KeyTile& block, int first, int cols,
                           bool wide) {
  if (out == nullptr) return;
  T* const to =
      rows_of<T>(out, stride, block.b, block.kv, block.of.key_row + static_cast<i64>(block.tile) * KEYS + first);
#pragma unroll
  for (int col = 0; col < D; col += 64) {
    tile::copy_out<64, 64, 128>(to + col, stride[2], tile + col * KEYS + first * 64, threadIdx.x % 128,
                                block.left - first, cols - col, wide);
  }
}

}  // namespace attention

template <class T, int D, class Where, int TERMS, bool RISING = false, class P>
BARACUDA_D void flash_gradients_relay(const P& p) {
  using namespace attention;
  using Tile = conditional<RISING, RisingTile, KeyTile>;
  constexpr int THREADS = 384, LOADERS = 64, KEYS = 64, QUERIES = 64, TILE = QUERIES * D, SCORES = KEYS * QUERIES;
  // columns of dq in one product; such units a group
  constexpr int UNIT = 64, UNITS = D / UNIT / 2, PART = QUERIES * UNIT;
  // registers a thread; 168 at launch
  constexpr int PRODUCER_REGISTERS = 40, CONSUMER_REGISTERS = (3 * 168 - PRODUCER_REGISTERS) / 2;
  // in a wgmma descriptor: from 16 elements of k to the next, along rows and across them
  constexpr u64 within = 32 >> 4, across = 2048 >> 4;
  static_assert(UNITS == 2, "the parity of a unit's phase is the group's number");
  enum Meeting { of_consumers = 1, of_group, of_window = of_group + 2 };  // named barriers
  BARACUDA_DYNAMIC_SMEM(T, shared);
  // [PANELS][KEYS][64], at the end dk
  T* const keys = shared + (1024 - smem_address(shared) % 1024) % 1024 / sizeof(T);
  T* const values = keys + KEYS * D;                                     // same layout, at the end dv
  T* const queries = values + KEYS * D;                                  // [2][PANELS][QUERIES][64]
  T* const grads = queries + 2 * TILE;                                   // [PANELS][QUERIES][64]: dy
  T* const scores = grads + TILE;                                        // [2][KEYS][QUERIES]: ds, transposed
  uint4* const weights = reinterpret_cast<uint4*>(scores + 2 * SCORES);  // [4][128]: fragments, by thread
  float* const part = reinterpret_cast<float*>(weights + 512);           // [2][QUERIES][UNIT]: partial dq
  Stats* const stats = reinterpret_cast<Stats*>(part + 2 * PART);        // [2][QUERIES / 2]
  __shared__ Barrier keys_full, queries_full[2], queries_empty[2], grads_full, grads_empty;
  __shared__ Barrier weights_full, weights_empty, ds_full[2], ds_empty[2];
  // Per unit, one for even steps and one for odd ones (each reducing warp skips every other step); one phase for each
  // group.
  __shared__ Barrier part_full[2][2], part_empty[2][2];
  __shared__ Item<Tile> block;

  if (threadIdx.x == 0) {
    keys_full.init(THREADS);
    grads_full.init(LOADERS), grads_empty.init(8);
    weights_full.init(4), weights_empty.init(4);
    for (int n = 0; n < 2; ++n) {
      queries_full[n].init(LOADERS), queries_empty[n].init(4);
      ds_full[n].init(4), ds_empty[n].init(8);
    }
    for (int n = 0; n < 4; ++n) part_full[n / 2][n % 2].init(4), part_empty[n / 2][n % 2].init(1);
    block.template claim<QUERIES, KEYS, Where>(p);
  }
  __syncthreads();
  if (Where::surplus && block.left == 0) return;
  load_keys<KEYS, D, THREADS>(keys, values, keys_full, block, p);
  Walk now{block.start(), 0};
  u32 steps = 0;

  if (warpgroup() == 0) {
    release_registers<PRODUCER_REGISTERS>();
    if (threadIdx.x < LOADERS) {
      constexpr int HALF = QUERIES / 2;  // the rows each warp loads
      const int row0 = threadIdx.x < warp_size ? 0 : HALF;
      const auto load = [&](T* to, const void* from, const i64(&stride)[3], int cols, bool wide) {
        const i64 q0 = static_cast<i64>(now.at) * QUERIES;
        const int rows = inside<QUERIES>(block.of.query_len, q0);
        const T* const x =
            rows_of<T>(from, stride, block.b, block.kv * p.group + now.head, block.of.query_row + q0 + row0);
        tile::copy_as_warp<HALF, D, QUERIES>(to + row0 * 64, x, stride[2], rows - row0, cols, wide);
      };
#pragma unroll 1
      for (; block.sees(now.at); now.step(p.group, block), ++steps) {
        const Stage<2> stage{steps};
        const Stage<1> grad{steps};
        const u32 at = stage.index();
        queries_empty[at].wait(stage.empty_parity());
        if (row0 == 0) {
          const u32 h = block.kv * p.group + now.head;
          const i64 row = (block.b * p.num_heads + h) * p.padded + (block.of.before + now.at) * QUERIES;
          const Stats* const from = static_cast<const Stats*>(p.stats) + row / 2;
          cp_async_16(stats + at * (QUERIES / 2) + threadIdx.x, from + threadIdx.x);
        }
        load(queries + at * TILE, p.q, p.stride[0], p.d_k, p.wide & 1);
        queries_full[at].arrive_when_copied(p.wide & 1);
        grads_empty.wait(grad.empty_parity());
        load(grads, p.dy, p.stride[3], p.d_v, p.wide & 8);
        grads_full.arrive_when_copied(p.wide & 8);
      }
      if (steps != 0) {  // the empty step after the last, whose scores consumers start and do not read
        const Stage<2> stage{steps};
        queries_empty[stage.index()].wait(stage.empty_parity());
        queries_full[stage.index()].arrive();
        grads_empty.wait(Stage<1>{steps}.empty_parity());
        grads_full.arrive();
      }
    } else {
      const u32 self = threadIdx.x / warp_size % 2;  // the two reducing warps alternate
      if (block.sees(now.at) && self == 1) {
        for (int n = 0; n < 2 * UNITS; ++n) {  // the empty partial dq that consumers publish before the first step
          part_full[n % UNITS][0].wait(n / UNITS);
          part_empty[n % UNITS][0].arrive_as_warp();
        }
      }
#pragma unroll 1
      for (; block.sees(now.at); now.step(p.group, block), ++steps) {
        if (steps % 2 != self) continue;
        const Turn<QUERIES, KEYS, TILE, P, Tile> turn(p, block, now);
        const u32 place = (steps + 1) % 2;
#pragma unroll 1
        for (int group = 0; group < 2; ++group) {
#pragma unroll
          for (int unit = 0; unit < UNITS; ++unit) {
            part_full[unit][place].wait(group);
            if (turn.adds) turn.add((group * UNITS + unit) * PART, part + unit * PART, PART);
          }
          if (turn.adds) bulk_wait_read<1>();
          part_empty[0][place].arrive_as_warp();
          if (turn.adds) bulk_wait_read<0>();
          part_empty[1][place].arrive_as_warp();
        }
        turn.pass();
      }
    }
    return;
  }

  acquire_registers<CONSUMER_REGISTERS>();
  const int group = warpgroup() - 1, warp = static_cast<int>(threadIdx.x) / warp_size % 4, key0 = warp * 16;
  const bool weighs = group == 0;
  const u64 query = wgmma_operand(queries), grad = wgmma_operand(grads), score = wgmma_operand(scores);
  const u64 mine = wgmma_operand(weighs ? keys : values);
  const u64 to_keys = wgmma_operand(keys + group * (UNITS * KEYS * 64));  // the group's columns of dq
  const int quad = forgotten(lane_id() % 4);
  float acc[D / 8][4];  // dv or dk
#pragma unroll
  for (int n = 0; n < D / 8; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) acc[n][e] = 0.0f;
  }
  using Added = TermsOf<TERMS, float, true, P>;
  Added terms(p, p.query_len, p.key_len, p.shift);
  if constexpr (TERMS != 0) terms.enter(block.b, block.kv * p.group);
  const int j = static_cast<int>(block.tile) * KEYS + key0 + lane_id() / 4;
  const float c = static_cast<float>(p.scale * 1.4426950408889634);

  const auto begin_window = [&] { sync_threads<256>(of_window + group); };
  const auto end_window = [&] { arrive_threads<256>(of_window + (group ^ 1)); };
  float s[QUERIES / 8][4];  // scores in the first group, dy v in the second
  const auto start_scores = [&](u32 place) {
    const u64 y = weighs ? query + place * (TILE / 8) : grad;
    wgmma_fence();
#pragma unroll
    for (int d = 0; d < D; d += 16) {
      const u64 step = d % 64 / 16 * within;
      wgmma<T, false, false>(s, mine + d / 64 * (KEYS * 8) + step, y + d / 64 * (QUERIES * 8) + step, d != 0);
    }
    wgmma_commit();
  };
  const auto start_dq = [&](float(&dq)[UNIT / 8][4], u32 place, int unit) {
    wgmma_fence();
#pragma unroll
    for (int j = 0; j < KEYS; j += 16) {
      const u64 y = to_keys + unit * (KEYS * 8) + j / 16 * across;
      wgmma<T, true, true>(dq, score + place * (SCORES / 8) + j / 16 * across, y, j != 0);
    }
    wgmma_commit();
  };
  // Publishes a unit of partial dq to the reducing warps, once they have read what stood there.
  const auto publish_dq = [&](const float(&dq)[UNIT / 8][4], int unit) {
    float* const to = part + unit * PART + warp * (16 * UNIT) + lane_id() * 4;
    part_empty[unit][(steps + 1 + group) % 2].wait(group ^ 1);
#pragma unroll
    for (int n = 0; n < UNIT / 8; ++n) {
      *reinterpret_cast<float4*>(to + n * 128) = float4{dq[n][0], dq[n][1], dq[n][2], dq[n][3]};
    }
    part_full[unit][steps % 2].arrive_as_warp();
  };
  // Waits for the rows of a step: queries in the first group, dy in the second.
  const auto await_rows = [&](u32 step) {
    const Stage<2> stage{step};
    if (weighs) queries_full[stage.index()].wait(stage.full_parity());
    else grads_full.wait(step % 2);
    wgmma_publish();
  };

  const bool some = block.sees(now.at);
  keys_full.wait(0);  // even without steps: a late copy would overwrite dk and dv
  if (some) {
    // stage of step -1, whose ds are nothing: dq of the first step is not read
    if (!weighs) ds_full[0].arrive_as_warp();
    if (!weighs) begin_window();
    await_rows(0);
    start_scores(0);
    end_window();
    wgmma_wait<0>();
    hold(s);
    if (!weighs) grads_empty.arrive_as_warp();
  }
#pragma unroll 1
  while (block.sees(now.at)) {  // s holds the products of this step
    const Stage<2> stage{steps}, next{steps + 1};
    const Stage<2> fresh{steps + 1}, stale{steps};  // ds of this step and of the last
    const Stats* const stat = stats + (stage.index() * (QUERIES / 2) + quad);
    const bool cut = now.at < block.clear[0] || now.at > block.clear[1];
    u32 x16[QUERIES / 16][4];
    if constexpr (TERMS != 0) {
      if (p.group > 1) terms.enter(block.b, block.kv * p.group + now.head);
    }
    uint4* const sent = weights + threadIdx.x % 128;
    if (weighs) {
      const FarRows<QUERIES, P, Tile> far(p, block, now, stat - quad);
      u32 w16[QUERIES / 16][4];
      if constexpr (TERMS == 0) {
        far.lower(s, 0, static_cast<float>(p.scale));
#pragma unroll
        for (int n = 0; n < QUERIES / 8; ++n) {
          const float2 lse = stat[4 * n].lse;
          float w[4];
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            w[e] = exp2_fast(math::fma(s[n][e], c, log2_weight_unit - (e % 2 ? lse.y : lse.x)));
          }
          put_pairs<T>(x16, n, w);
          put_pairs<f16>(w16, n, w);
        }
      } else {
        const int ahead = now.at * QUERIES + 2 * quad + static_cast<int>(p.shift) - j;
        if (terms.capped()) weigh_apart<T, true>(x16, w16, s, stat, far, terms, static_cast<float>(ahead));
        else weigh_apart<T, false>(x16, w16, s, stat, far, terms, static_cast<float>(ahead));
      }
      far.template spare<T>(w16, x16, 0, weight_unit), far.template spare<T>(w16, x16, 4, weight_unit);
      if (cut) {
        const Mask mask = mask_at<QUERIES, KEYS>(p, block, now);
        hide(x16, 0, key0, mask), hide(x16, 4, key0, mask);
        hide(w16, 0, key0, mask), hide(w16, 4, key0, mask);
      }
      weights_empty.wait(steps % 2 ^ 1);
#pragma unroll
      for (int n = 0; n < QUERIES / 16; ++n) sent[n * 128] = uint4{w16[n][0], w16[n][1], w16[n][2], w16[n][3]};
      weights_full.arrive_as_warp();
      grads_full.wait(steps % 2);
      wgmma_publish();
    } else {
      weights_full.wait(steps % 2);
#pragma unroll
      for (int n = 0; n < QUERIES / 16; ++n) {
        const uint4 w16 = sent[n * 128];
        const u32 pairs[4] = {w16.x, w16.y, w16.z, w16.w};
#pragma unroll
        for (int k = 0; k < 2; ++k) {
          const float2 delta = stat[4 * (2 * n + k)].delta;
          const float low = delta.x * (1 / weight_unit), high = delta.y * (1 / weight_unit);
          float ds[4];
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const float2 w = __half22float2(*reinterpret_cast<const __half2*>(&pairs[2 * k + half]));
            ds[2 * half] = w.x * math::fma(s[2 * n + k][2 * half], 1 / weight_unit, -low);
            ds[2 * half + 1] = w.y * math::fma(s[2 * n + k][2 * half + 1], 1 / weight_unit, -high);
          }
          put_pairs<T>(x16, 2 * n + k, ds);
        }
      }
      weights_empty.arrive_as_warp();
      if (cut) {
        const Mask mask = mask_at<QUERIES, KEYS>(p, block, now);
        hide(x16, 0, key0, mask), hide(x16, 4, key0, mask);
      }
      ds_empty[fresh.index()].wait(fresh.empty_parity());
      const tile::Reader<64, false> to(scores + key0 * 64);
#pragma unroll
      for (int n = 0; n < QUERIES / 16; ++n) to.write(x16[n], 0, 16 * n, fresh.index() * (SCORES * sizeof(T)));
      wgmma_publish();
      ds_full[fresh.index()].arrive_as_warp();
    }
    now.step(p.group, block);
    ds_full[stale.index()].wait(stale.full_parity());
    begin_window();
    float dq[UNITS][UNIT / 8][4];  // meaningless at the first step; its reader skips it
    hold(x16);
    wgmma_fence();
    {
      const u64 y = weighs ? grad : query + stage.index() * (TILE / 8);
#pragma unroll
      for (int i = 0; i < QUERIES; i += 16) {
#pragma unroll
        for (int d = 0; d < D; d += 64) {
          wgmma<T, true>(reinterpret_cast<float(&)[8][4]>(acc[d / 8]), x16[i / 16],
                         y + d / 64 * (QUERIES * 8) + i / 16 * across, 1);
        }
      }
      wgmma_commit();
    }
    start_dq(dq[0], stale.index(), 0);
    wgmma_wait<0>();
    hold(dq[0]);
    hold(acc);
    hold(x16);
    if (weighs) grads_empty.arrive_as_warp();
    else queries_empty[stage.index()].arrive_as_warp();
    start_dq(dq[1], stale.index(), 1);
    publish_dq(dq[0], 0);
    await_rows(steps + 1);
    start_scores(next.index());
    end_window();
    wgmma_wait<1>();
    hold(dq[1]);
    ds_empty[stale.index()].arrive_as_warp();
    publish_dq(dq[1], 1);
    wgmma_wait<0>();
    hold(s);
    if (!weighs) grads_empty.arrive_as_warp();
    ++steps;
  }
  if (some) {  // dq of the last step
    const Stage<2> stale{steps};
    float dq[UNITS][UNIT / 8][4];
    ds_full[stale.index()].wait(stale.full_parity());
    begin_window();
#pragma unroll
    for (int unit = 0; unit < UNITS; ++unit) {
      start_dq(dq[unit], stale.index(), unit);
      wgmma_wait<0>();
      hold(dq[unit]);
      publish_dq(dq[unit], unit);
    }
    end_window();
    if (weighs) begin_window();  // a window for each that the other consumer ended
  }

  hold(acc);
  sync_threads<256>(of_consumers);  // all have read keys and values
  T* const tile = weighs ? values : keys;
  const float factor = weighs ? 1 / weight_unit : static_cast<float>(p.scale);
  tile::put_panels<KEYS * 64>(tile + key0 * 64, acc, {factor, factor});
  sync_threads<128>(of_group + group);
  if (weighs) write_rows<KEYS, D>(p.dv, p.stride[6], tile, block, 0, p.d_v, p.wide & 64);
  else write_rows<KEYS, D>(p.dk, p.stride[5], tile, block, 0, p.d_k, p.wide & 32);
}

}  // namespace baracuda
