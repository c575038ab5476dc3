// flash_sdpa_backward_pipelined    what flash_sdpa_backward_wgmma computes, by the same tiles, turns and order of sums, but
//   for masks and dropout: those are left to that one, and head_dim 256 to flash_sdpa_backward_relay.
//
// A block is two warpgroups that multiply, each 64 keys and all columns of their dk and dv, and one that serves them. Two
// of its warps load, one the queries and one dy, up to STAGES tiles ahead. The other two add to the sums of dq, when it is
// the block's turn, what the groups leave in shared memory; flash_finish makes dq of them.
//
// A group's step is its exponentials, and then a window in which no other group starts products: dv and dk of the step, its
// half of dq's columns of the step before, of which both groups have left ds by then, and the scores of the step after. So
// one group's exponentials run beside the other's products, and the tensor cores have the next before they are done. On an
// H200, head_dim 128, 16k queries and keys, in TFLOP/s: 556 with windows, 504 without. What it then waits for is shared
// memory: 3010 cycles of a step's 3720, for 2560 of products. cp.async.bulk reads what it adds at 19 bytes a cycle, so that
// groups leave their halves apart, and each finds its own read when it has the next.
#include "attention/flash_sdpa_backward_server.cuh"
#include <baracuda/opaque.cuh>
#include <baracuda/wgmma.cuh>

namespace baracuda {

template <class T, int D, int STAGES, class Where, int TERMS, class P>
BARACUDA_D void flash_gradients_pipelined(const P& p) {
  using namespace attention;
  constexpr int THREADS = 384, LOADERS = 64, GROUPS = 2, WARPS = 4 * GROUPS, KEYS = 64 * GROUPS, QUERIES = 64;
  constexpr int TILE = QUERIES * D, SCORES = KEYS * QUERIES, WIDTH = D / GROUPS;  // columns of dq a group adds up
  constexpr int OF_SERVERS = 40, OF_WORKERS = (3 * 168 - OF_SERVERS) / 2;  // of 168 registers at launch
  constexpr bool HELD = D == 64;  // whether there are registers for ds as dk's left operand; else it comes from shared memory
  constexpr u64 within = 32 >> 4, across = 2048 >> 4;  // 16 elements along k, in a descriptor
  enum Meeting { of_workers = 1, of_group, of_window = of_group + GROUPS };  // ids of barriers
  BARACUDA_DYNAMIC_SMEM(T, shared);
  T* const keys = shared + (1024 - smem_address(shared) % 1024) % 1024 / sizeof(T);  // [PANELS][KEYS][64], at the end dk
  T* const values = keys + KEYS * D;                                                // the same, at the end dv
  T* const queries = values + KEYS * D;                                             // [STAGES][PANELS][QUERIES][64]
  T* const grads = queries + STAGES * TILE;                                         // the same: dy
  T* const scores = grads + STAGES * TILE;                                          // [2][KEYS][QUERIES]: ds, transposed
  float* const part = reinterpret_cast<float*>(scores + 2 * SCORES);                // [GROUPS][QUERIES][WIDTH]: dq
  Stats* const stats = reinterpret_cast<Stats*>(part + TILE);                       // [STAGES][QUERIES / 2]
  __shared__ Barrier keys_there, rows_there[STAGES], rows_free[STAGES];
  // Of even steps and of odd ones, which barriers of their own let warps wait for that skip the others.
  __shared__ Barrier ds_there[2], ds_free[2], part_there[GROUPS][2], part_free[GROUPS][2];
  __shared__ KeyTile block;
  __shared__ int clear[2];  // the first and the last tile of queries that see all of the keys

  if (threadIdx.x == 0) {
    keys_there.make(THREADS);
    for (int n = 0; n < STAGES; ++n) rows_there[n].make(LOADERS), rows_free[n].make(WARPS);
    for (int n = 0; n < 2; ++n) ds_there[n].make(WARPS), ds_free[n].make(WARPS);
    for (int n = 0; n < 2 * GROUPS; ++n) part_there[n / 2][n % 2].make(4), part_free[n / 2][n % 2].make(1);
    take_keys<QUERIES, KEYS, Where>(block, clear, p);
  }
  __syncthreads();
  if (Where::surplus && block.left == 0) return;
  load_keys<KEYS, D, THREADS>(keys, values, keys_there, block, p);
  Walk now{block.last, 0};
  u32 steps = 0;

  if (warpgroup() == 0) {
    leave_registers<OF_SERVERS>();
    if (threadIdx.x < LOADERS) {
      const bool other = threadIdx.x >= warp_size;  // the one that loads dy
      const auto first_row = [&](const void* from, const i64(&stride)[3]) {
        return rows_of<T>(from, stride, block.b, block.kv * p.group, block.of.query_row);
      };
      const T* const mine = other ? first_row(p.dy, p.stride[3]) : first_row(p.q, p.stride[0]);
      const i64 by_head = p.stride[other ? 3 : 0][1], by_row = p.stride[other ? 3 : 0][2];
      T* const to = other ? grads : queries;
      const int cols = other ? p.d_v : p.d_k;
      const bool wide = p.wide & (other ? 8 : 1);
#pragma unroll 1
      for (; now.at >= block.first; now.step(p.group), ++steps) {
        const Round<STAGES> store{steps};
        const u32 at = store.place();
        const i64 q0 = static_cast<i64>(now.at) * QUERIES;
        const int rows = inside<QUERIES>(block.of.query_len, q0);
        rows_free[at].wait(store.emptied());
        if (!other) {
          const u32 h = block.kv * p.group + now.head;
          const i64 row = (block.b * p.num_heads + h) * p.padded + block.of.before * QUERIES + q0;
          const Stats* const from = static_cast<const Stats*>(p.stats) + row / 2;
          cp_async_16(stats + at * (QUERIES / 2) + threadIdx.x, from + threadIdx.x);
        }
        const T* const from = mine + now.head * by_head + q0 * by_row;
        tile::copy_as_warp<QUERIES, D>(to + at * TILE, from, by_row, rows, cols, wide);
        rows_there[at].arrive_when_copied(wide);
      }
      if (steps != 0) {  // and once more, of nothing: groups start a step after the last
        const Round<STAGES> store{steps};
        rows_free[store.place()].wait(store.emptied());
        rows_there[store.place()].arrive();
      }
    } else {
      const u32 self = threadIdx.x / warp_size % 2;  // the two warps take steps in turn
      if (now.at >= block.first && self == 1) {
        for (int half = 0; half < GROUPS; ++half) {  // what groups leave of nothing before the first step's
          part_there[half][0].wait(0);
          part_free[half][0].arrive_as_warp();
        }
      }
#pragma unroll 1
      for (; now.at >= block.first; now.step(p.group), ++steps) {
        if (steps % 2 != self) continue;
        const Turn<QUERIES, KEYS, TILE, P> turn(p, block, now);
        const Round<2> place{steps + 1};
#pragma unroll 1
        for (int half = 0; half < GROUPS; ++half) {
          part_there[half][place.place()].wait(place.filled());
          if (turn.adds) {
            turn.add(half * (QUERIES * WIDTH), part + half * (QUERIES * WIDTH), QUERIES * WIDTH);
            bulk_wait_read<0>();
          }
          part_free[half][place.place()].arrive_as_warp();
        }
        turn.pass();
      }
    }
    return;
  }

  take_registers<OF_WORKERS>();
  const int group = warpgroup() - 1, warp = static_cast<int>(threadIdx.x) / warp_size - 4, key0 = warp * 16;
  // Along the columns, and (to_…) across them.
  const u64 key = wgmma_operand(keys), mine = key + group * (64 * 8), to_keys = key + group * (WIDTH == 64 ? KEYS * 8 : 4);
  const u64 query = wgmma_operand(queries), to_queries = wgmma_operand(queries, QUERIES * 128);
  const u64 score = wgmma_operand(scores);
  constexpr u64 to_values = KEYS * D / 8, to_grads = STAGES * TILE / 8;
  const int quad = forgotten(lane_id() % 4);
  const float c = static_cast<float>(p.scale * 1.4426950408889634), scale = static_cast<float>(p.scale);
  float dk[D / 8][4], dv[D / 8][4];
#pragma unroll
  for (int n = 0; n < D / 8; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) dk[n][e] = dv[n][e] = 0.0f;
  }
  using Added = TermsOf<TERMS, float, true, P>;
  Added terms(p, p.query_len, p.key_len, p.shift);
  if constexpr (TERMS != 0) terms.enter(block.b, block.kv * p.group);
  const int j = static_cast<int>(block.tile) * KEYS + key0 + lane_id() / 4;

  const auto begin_window = [&] { sync_threads<128 * GROUPS>(of_window + group); };  // also a barrier of the group
  const auto end_window = [&] { arrive_threads<128 * GROUPS>(of_window + (group ^ 1)); };
  const tile::Reader<64, false> mine_of_ds(scores + key0 * 64);
  // x y^T over all columns: the group's 64 keys by all queries of a tile.
  const auto start_scores = [&](float (&to)[QUERIES / 8][4], u64 x, u64 y) {
#pragma unroll
    for (int d = 0; d < D; d += 16) {
      const u64 step = d % 64 / 16 * within;
      wgmma<T, false, false>(to, x + d / 64 * (KEYS * 8) + step, y + d / 64 * (QUERIES * 8) + step, d != 0);
    }
    wgmma_commit();
  };
  // to += x y over the queries of a tile, x in registers or not.
  const auto add_product = [&](float (&to)[D / 8][4], const auto& x, u64 y) {
    if constexpr (!is_same<decltype(x), const u64&>) hold(x);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < QUERIES; i += 16) {
      if constexpr (is_same<decltype(x), const u64&>) wgmma<T, false, true>(to, x + i / 16 * within, y + i / 16 * across, 1);
      else wgmma<T, true>(to, x[i / 16], y + i / 16 * across, 1);
    }
    wgmma_commit();
  };
  // The group's columns of dq of a tile whose ds are in place `at`.
  const auto start_dq = [&](float (&dq)[WIDTH / 8][4], u32 at) {
    wgmma_fence();
#pragma unroll
    for (int j = 0; j < KEYS; j += 16) {
      wgmma<T, true, true>(dq, score + at * (SCORES / 8) + j / 16 * across, to_keys + j / 16 * across, j != 0);
    }
    wgmma_commit();
  };
  // To where servers find it, when what was there before is read.
  const auto leave_dq = [&](const float (&dq)[WIDTH / 8][4], Round<2> before, bool found) {
    float* const to = part + (group * 4 + warp % 4) * (16 * WIDTH) + lane_id() * 4;
    part_free[group][before.place()].wait(before.filled(), found);
#pragma unroll
    for (int n = 0; n < WIDTH / 8; ++n) {
      *reinterpret_cast<float4*>(to + n * 128) = float4{dq[n][0], dq[n][1], dq[n][2], dq[n][3]};
    }
  };
  float s[QUERIES / 8][4], ds[QUERIES / 8][4];
  const auto start_step = [&](Round<STAGES> store) {  // when its rows are there
    const u64 at = store.place() * (TILE / 8);
    wgmma_fence();
    start_scores(s, mine, query + at);
    start_scores(ds, mine + to_values, query + at + to_grads);
  };

  // What is looked up of the step after while its scores are made.
  const Stats* stat = stats;                      // of the thread's first two queries
  Stats early[2];                                 // the same and the next
  bool cut = false, more = now.at >= block.first;  // whether anything is masked, whether there is such a step
  const auto look_up = [&](Round<STAGES> store) {
    stat = stats + (store.place() * (QUERIES / 2) + quad);
    early[0] = stat[0], early[1] = stat[4];
    cut = now.at < clear[0] || now.at > clear[1];
    more = now.at >= block.first;
  };

  const bool some = more;
  keys_there.wait(0);  // in any case: what comes later would stand in dk and dv
  if (some) {
    ds_there[0].arrive_as_warp();  // of nothing
    if (group == 1) begin_window();
    rows_there[0].wait(0);
    wgmma_publish();
    start_step({0});
    end_window();
    look_up({0});
    wgmma_wait<0>();
    hold(s);
    hold(ds);
  }
#pragma unroll 1
  while (more) {  // s and ds are there
    const Round<STAGES> store{steps}, next{steps + 1};
    const Round<2> fresh{steps + 1}, stale{steps}, before{steps - 1};  // ds of this step and of the last, and a dq before
    const u64 at = store.place() * (TILE / 8);
    u32 p16[QUERIES / 16][4], ds16[QUERIES / 16][4];
    const bool ds_read = ds_free[fresh.place()].over(fresh.emptied());
    auto to = mine_of_ds;
    to.address = static_cast<u32>(forgotten(static_cast<int>(to.address)));  // or its rows' addresses are kept, and spill
    const auto weigh = [&](int from) {
      if constexpr (TERMS == 0) {
        weigh_and_differ<T>(p16, ds16, s, ds, from, early, stat, c);
      } else {
        const int ahead = now.at * QUERIES + 2 * quad + static_cast<int>(p.shift) - j;
        if (terms.capped()) weigh_and_differ<T, true>(p16, ds16, s, ds, from, stat, terms, static_cast<float>(ahead));
        else weigh_and_differ<T, false>(p16, ds16, s, ds, from, stat, terms, static_cast<float>(ahead));
      }
      if (cut) {
        const Mask mask = mask_at<QUERIES, KEYS>(p, block, now);
        hide(p16, from, key0, mask);
        hide(ds16, from, key0, mask);
      }
    };
    const auto put_ds = [&](int from) {
#pragma unroll
      for (int n = from / 2; n < from / 2 + 2; ++n) to.write(ds16[n], 0, 16 * n, fresh.place() * (SCORES * sizeof(T)));
    };
    if constexpr (TERMS != 0) {
      if (p.group > 1) terms.enter(block.b, block.kv * p.group + now.head);
    }
    weigh(0);
    ds_free[fresh.place()].wait(fresh.emptied(), ds_read);
    put_ds(0);
    weigh(4);
    const bool rows_in = rows_there[next.place()].over(next.filled());
    const bool ds_in = ds_there[stale.place()].over(stale.filled());
    put_ds(4);
    now.step(p.group);
    rows_there[next.place()].wait(next.filled(), rows_in);
    wgmma_publish();  // ds, and what came by cp.async
    ds_there[fresh.place()].arrive_as_warp();
    ds_there[stale.place()].wait(stale.filled(), ds_in);
    begin_window();
    const bool part_read = part_free[group][before.place()].over(before.filled());
    float dq[WIDTH / 8][4];  // at the first step of nothing
    add_product(dv, p16, to_queries + at + to_grads);
    start_dq(dq, stale.place());
    if constexpr (HELD) add_product(dk, ds16, to_queries + at);
    else add_product(dk, score + fresh.place() * (SCORES / 8) + group * (64 * 8), to_queries + at);
    wgmma_wait<1>();
    hold(dq);
    hold(p16);
    ds_free[stale.place()].arrive_as_warp();
    leave_dq(dq, before, part_read);
    start_step(next);
    end_window();
    look_up(next);
    part_there[group][steps % 2].arrive_as_warp();
    wgmma_wait<0>();
    hold(s);
    hold(ds);
    if constexpr (HELD) hold(ds16);
    rows_free[store.place()].arrive_as_warp();
    ++steps;
  }
  if (some) {  // dq of the last step
    const Round<2> stale{steps};
    float dq[WIDTH / 8][4];
    ds_there[stale.place()].wait(stale.filled());
    begin_window();
    start_dq(dq, stale.place());
    wgmma_wait<0>();
    hold(dq);
    leave_dq(dq, {steps - 1}, false);
    part_there[group][steps % 2].arrive_as_warp();
    end_window();
    if (group == 0) begin_window();  // as often as the other has ended one
  }

  hold(dk);
  hold(dv);
  sync_threads<128 * GROUPS>(of_workers);  // all are done with the keys
  put_rows<KEYS>(keys + key0 * 64, dk, scale);
  put_rows<KEYS>(values + key0 * 64, dv, 1.0f);
  sync_threads<128>(of_group + group);
  write_rows<KEYS, D>(p.dk, p.stride[5], keys, block, 64 * group, p.d_k, p.wide & 32);
  write_rows<KEYS, D>(p.dv, p.stride[6], values, block, 64 * group, p.d_v, p.wide & 64);
}

}  // namespace baracuda
