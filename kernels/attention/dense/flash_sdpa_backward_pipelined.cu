// flash_sdpa_backward_pipelined    what flash_sdpa_backward_wgmma computes, by the same tiles, turns and order of sums, but
//   for masks and dropout: those are left to that one, and head_dim 256 to flash_sdpa_backward_relay.
//
// A block stays on its multiprocessor and takes one tile of keys after the other. It is two warpgroups that multiply, each 64
// keys and all columns of their dk and dv, and one that serves them. Two of its warps load, one queries and keys and one dy and
// values, up to STAGES tiles of queries ahead, and where there is room the next keys and values. The other two add to the sums
// of dq, when it is the block's turn, what the groups leave in shared memory; flash_finish makes dq of them. The groups leave dk
// and dv in shared memory too, and bulk copies store them beside the next keys' first products.
//
// H200, 1024 queries and keys, full, TFLOP/s: with a block for each item 343 (head_dim 64) and 436 (128), so 379 and 453. An
// item takes 68500 cycles at 128, 58100 of them in its 16 steps. What counts between items: outputs that warps store
// themselves, behind which loads wait, so that the next keys come 1900 cycles late; a bulk copy that a lane asks for, 70; an
// item found too late for its keys to be loaded beside the last steps, 3000. With two stages of rows, for a second place of
// keys at 128, all is a fifth slower.
//
// A group's step is its exponentials, and then a window in which no other group starts products: dv and dk of the step, its
// half of dq's columns of the step before, of which both groups have left ds by then, and the scores of the step after. So
// one group's exponentials run beside the other's products, and the tensor cores have the next before they are done. On an
// H200, head_dim 128, 16k queries and keys, in TFLOP/s: 556 with windows, 504 without. What it then waits for is shared
// memory: 3010 cycles of a step's 3720, for 2560 of products. cp.async.bulk reads what it adds at 19 bytes a cycle, so that
// groups leave their halves apart, and each finds its own read when it has the next.
#include "attention/dense/flash_sdpa_backward_server.cuh"
#include <baracuda/opaque.cuh>
#include <baracuda/wgmma.cuh>

namespace baracuda {
namespace attention {

// What a block works on, one item after the other, in the order of tickets: found by one thread, and left for warps that
// each read it until they leave it.
template <int QUERIES, int KEYS, class Where> struct Items {
  static constexpr u32 PLACES = 3;
  Item<KeyTile> items[PLACES];
  Barrier there[PLACES], free[PLACES];

  BARACUDA_D void make(u32 readers) {
    for (u32 n = 0; n < PLACES; ++n) there[n].make(1), free[n].make(readers);
  }
  template <class P> BARACUDA_D void find(u32 n, const P& p) {
    const Round<PLACES> place{n};
    free[place.place()].wait(place.emptied());
    items[place.place()].template take<QUERIES, KEYS, Where>(p);
    there[place.place()].arrive();
  }
  BARACUDA_D const Item<KeyTile>& await(u32 n) {
    const Round<PLACES> place{n};
    there[place.place()].wait(place.filled());
    return items[place.place()];
  }
  BARACUDA_D void leave(u32 n) { free[n % PLACES].arrive_as_warp(); }
};

// 16 rows of a gradient of the block's keys, from `first` on, by a warp: products times a factor. Where rows are whole 16 bytes
// put leaves them in shared memory of the warp's own, 8 rows of 8 N elements in each place, for store to store behind the
// program, after a bulk_begin and a __syncwarp.
template <int KEYS, class T> struct GradientRows {
  T* out;
  i64 stride;
  int rows, cols;
  bool wide;

  BARACUDA_D GradientRows(void* gradient, const i64(&stride)[3], const KeyTile& block, int first, int cols, bool wide)
      : out(rows_of<T>(gradient, stride, block.b, block.kv, block.of.key_row + static_cast<i64>(block.tile) * KEYS + first)),
        stride(stride[2]), rows(gradient == nullptr ? 0 : min(block.left - first, 16)), cols(cols), wide(wide) {}

  template <int N> BARACUDA_D void put(const float (&x)[N][4], float factor, T* const (&places)[2]) const {
    const float factors[2] = {factor, factor};
    if (wide) put_rows<true, true>(places, 8 * N, 16, 8 * N, x, factors);
    else put_rows<false>({out, out + 8 * stride}, stride, rows, cols, x, factors);
  }
  template <int N> BARACUDA_D void store(T* const (&places)[2]) const {
    const int row = lane_id();
    if (!wide) return;
    if (stride == 8 * N && cols == 8 * N && rows == 16) {  // one after the other: 70 cycles for each that a warp asks for
      if (row < 2) bulk_store(out + row * (64 * N), row == 0 ? places[0] : places[1], 64 * N * sizeof(T));
    } else if (row < rows) {
      bulk_store(out + row * stride, (row < 8 ? places[0] : places[1]) + row % 8 * (8 * N), static_cast<u32>(cols * sizeof(T)));
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
  constexpr int TILE = QUERIES * D, SCORES = KEYS * QUERIES, WIDTH = D / GROUPS;  // columns of dq a group adds up
  constexpr int OF_SERVERS = D == 64 ? 56 : 40, OF_WORKERS = (3 * 168 - OF_SERVERS) / 2;  // of 168 registers at launch
  constexpr int HOMES = D == 64 ? 2 : 1;  // places of keys and values
  constexpr bool LENT = D != 64;  // whether dv goes by the place of rows that the step after the last has and needs none of
  constexpr bool HELD = D == 64;  // whether there are registers for ds as dk's left operand; else it comes from shared memory
  constexpr u64 within = 32 >> 4, across = 2048 >> 4;  // 16 elements along k, in a descriptor
  enum Meeting { of_window = 1 };  // ids of barriers
  constexpr u32 BYTES = sizeof(T) * (2 * HOMES * KEYS * D + 2 * STAGES * TILE + 2 * SCORES) + 4 * TILE + 8 * STAGES * QUERIES + 1024;
  static_assert(BYTES + sizeof(Items<QUERIES, KEYS, Where>) + sizeof(Barrier) * (4 * HOMES + 2 * STAGES + 12) <= 227 << 10);
  BARACUDA_DYNAMIC_SMEM(T, shared);
  T* const keys = shared + (1024 - smem_address(shared) % 1024) % 1024 / sizeof(T);  // [HOMES][PANELS][KEYS][64]
  T* const values = keys + HOMES * KEYS * D;                                        // the same
  T* const queries = values + HOMES * KEYS * D;                                     // [STAGES][PANELS][QUERIES][64]
  T* const grads = queries + STAGES * TILE;                                         // the same: dy
  T* const scores = grads + STAGES * TILE;                                          // [2][KEYS][QUERIES]: ds, transposed
  float* const part = reinterpret_cast<float*>(scores + 2 * SCORES);                // [GROUPS][QUERIES][WIDTH]: dq
  Stats* const stats = reinterpret_cast<Stats*>(part + TILE);                       // [STAGES][QUERIES / 2]
  __shared__ Barrier keys_there[HOMES], keys_free[HOMES], values_there[HOMES], values_free[HOMES];
  __shared__ Barrier rows_there[STAGES], rows_free[STAGES];
  // Of even steps and of odd ones, which barriers of their own let warps wait for that skip the others.
  __shared__ Barrier ds_there[2], ds_free[2], part_there[GROUPS][2], part_free[GROUPS][2];
  __shared__ Items<QUERIES, KEYS, Where> items;

  if (threadIdx.x == 0) {
    items.make(WARPS + 4);
    for (int n = 0; n < HOMES; ++n) {
      keys_there[n].make(warp_size), keys_free[n].make(WARPS);
      values_there[n].make(warp_size), values_free[n].make(WARPS);
    }
    for (int n = 0; n < STAGES; ++n) rows_there[n].make(LOADERS), rows_free[n].make(WARPS);
    for (int n = 0; n < 2; ++n) ds_there[n].make(WARPS), ds_free[n].make(WARPS);
    for (int n = 0; n < 2 * GROUPS; ++n) part_there[n / 2][n % 2].make(4), part_free[n / 2][n % 2].make(1);
  }
  __syncthreads();
  u32 steps = 0;  // one more for each item that has any, whose scores are of nothing

  if (warpgroup() == 0) {
    leave_registers<OF_SERVERS>();
    if (threadIdx.x < LOADERS) {
#pragma unroll 1
      for (u32 n = 0;; ++n) {
        if (threadIdx.x == 0) items.find(n, p);
        const auto& block = items.await(n);
        if (block.left < 0) break;
        // The second warp is the one that loads values and dy.
        const auto load_block = [&](bool other) {
          const Round<HOMES> home{n};
          const bool wide = p.wide & (other ? 4 : 2);
          (other ? values_free : keys_free)[home.place()].wait(home.emptied());
          const auto& stride = p.stride[other ? 2 : 1];
          const i64 first = block.of.key_row + static_cast<i64>(block.tile) * KEYS;
          const T* const from = rows_of<T>(other ? p.v : p.k, stride, block.b, block.kv, first);
          T* const to = (other ? values : keys) + home.place() * (KEYS * D);
          constexpr int ONCE = 4096 / D;  // rows: more at a time would take more registers
#pragma unroll 1
          for (int r = 0; r < KEYS; r += ONCE) {
            tile::copy_as_warp<ONCE, D, KEYS>(to + r * 64, from + r * stride[2], stride[2], block.left - r, other ? p.d_v : p.d_k, wide);
          }
          (other ? values_there : keys_there)[home.place()].arrive_when_copied(wide);
        };
        Walk now{block.last, 0};
        bool more = true;
#pragma unroll 1
        for (u32 count = 1; more; ++count) {  // steps and, where there are any, one of nothing: groups start a step after the last
          const bool other = forgotten(static_cast<int>(threadIdx.x)) >= warp_size;  // what follows from it takes no registers
          more = now.at >= block.first;
          if (more || count != 1) {
            const Round<STAGES> store{steps++};
            const u32 at = store.place();
            rows_free[at].wait(store.emptied());
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
              rows_there[at].arrive_when_copied(wide);
              now.step(p.group);
            } else {
              rows_there[at].arrive();
            }
          }
          const u32 before = other || HOMES == 2 ? 1 : 2;  // keys are wanted to the last
          if (count == before || (!more && count < before)) load_block(other);
        }
        items.leave(n);
      }
    } else {
      const u32 self = threadIdx.x / warp_size % 2;  // the two warps take steps in turn
#pragma unroll 1
      for (u32 n = 0;; ++n) {
        const auto& block = items.await(n);
        if (block.left < 0) break;
        Walk now{block.last, 0};
        const bool some = now.at >= block.first;
        if (some && steps % 2 != self) {
          const Round<2> place{steps};
          for (int half = 0; half < GROUPS; ++half) {  // what groups leave of nothing before the first step's
            part_there[half][place.place()].wait(place.filled());
            part_free[half][place.place()].arrive_as_warp();
          }
        }
#pragma unroll 1
        for (; now.at >= block.first; now.step(p.group), ++steps) {
          if (steps % 2 != self) continue;
          const Turn<QUERIES, KEYS, TILE, P, KeyTile> turn(p, block, now);
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
        steps += some;
        items.leave(n);
      }
    }
    return;
  }

  take_registers<OF_WORKERS>();
  const int group = warpgroup() - 1, warp = static_cast<int>(threadIdx.x) / warp_size - 4, key0 = warp * 16;
  // Operands, from where the first stands: along the columns, and (to_…) across them, 64 of which are `apart` there.
  constexpr u64 to_values = HOMES * KEYS * D / 8, to_grads = STAGES * TILE / 8, query = 2 * to_values, score = query + 2 * to_grads;
  constexpr u64 to_queries = query + ((QUERIES * 128 >> 4) - 1 << 16);
  const u64 root = wgmma_operand(keys);
  u32 n = 0;  // the item
  const auto home_of = [](u32 n) { return Round<HOMES>{n}.place() * static_cast<u64>(KEYS * D / 8); };
  const int quad = forgotten(lane_id() % 4);
  const float c = static_cast<float>(p.scale * 1.4426950408889634), scale = static_cast<float>(p.scale);
  using Added = TermsOf<TERMS, float, true, P>;
  Added terms(p, p.query_len, p.key_len, p.shift);

  const auto begin_window = [&] { sync_threads<128 * GROUPS>(of_window + group); };
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
    const u64 ds = forgotten(root) + score + at * (SCORES / 8), to_keys = forgotten(root) + home_of(n) + group * (WIDTH == 64 ? KEYS * 8 : 4);
    wgmma_fence();
#pragma unroll
    for (int j = 0; j < KEYS; j += 16) {
      wgmma<T, true, true>(dq, ds + j / 16 * across, to_keys + j / 16 * across, j != 0);
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

#pragma unroll 1
  for (;; ++n) {
    const auto& block = items.await(n);
    if (block.left < 0) break;
    const Round<HOMES> home{n};
    if constexpr (TERMS != 0) terms.enter(block.b, block.kv * p.group);
    const int j = static_cast<int>(block.tile) * KEYS + key0 + lane_id() / 4;
    Walk now{block.last, 0};
    const auto of_dk = [&] { return GradientRows<KEYS, T>(p.dk, p.stride[5], block, key0, p.d_k, p.wide & 32); };
    const auto of_dv = [&] { return GradientRows<KEYS, T>(p.dv, p.stride[6], block, key0, p.d_v, p.wide & 64); };
    values_there[home.place()].wait(home.filled());
    keys_there[home.place()].wait(home.filled());
    if (now.at >= block.first) {
      float dk[D / 8][4], dv[D / 8][4];
#pragma unroll
      for (int n = 0; n < D / 8; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) dk[n][e] = dv[n][e] = 0.0f;
      }
      float s[QUERIES / 8][4], ds[QUERIES / 8][4];
      const auto start_step = [&](Round<STAGES> store, u64 values) {  // when its rows are there
        const u64 rows = forgotten(root) + query + store.place() * (TILE / 8), mine = forgotten(root) + group * (64 * 8);
        wgmma_fence();
        start_scores(s, mine + home_of(n), rows);
        start_scores(ds, mine + values, rows + to_grads);
      };
      // What is looked up of the step after while its scores are made.
      const Stats* stat = stats;                      // of the thread's first two queries
      Stats early[2];                                 // the same and the next
      bool cut = false, some_far = false, more = true;  // whether anything is masked, any row far, whether there is such a step
      const auto look_up = [&](Round<STAGES> store) {
        stat = stats + (store.place() * (QUERIES / 2) + quad);
        early[0] = stat[0], early[1] = stat[4];
        some_far = FarRows<QUERIES, P, KeyTile>::found(stat - quad);
        cut = now.at < block.clear[0] || now.at > block.clear[1];
      };

      const Round<STAGES> first{steps};
      ds_there[steps % 2].arrive_as_warp();  // of nothing
      if (group == 1) begin_window();
      rows_there[first.place()].wait(first.filled());
      wgmma_publish();
      start_step(first, to_values + home_of(n));
      end_window();
      look_up(first);
      wgmma_wait<0>();
      hold(s);
      hold(ds);
      bulk_wait_read<0>();  // of the last item's gradients
      __syncwarp();
      if (LENT && steps != 0) rows_free[Round<STAGES>{steps - 1}.place()].arrive_as_warp();
#pragma unroll 1
      do {  // s and ds are there
        const Round<STAGES> store{steps}, next{steps + 1};
        const Round<2> fresh{steps + 1}, stale{steps}, before{steps - 1};  // ds of this step and of the last, and a dq before
        u32 p16[QUERIES / 16][4], ds16[QUERIES / 16][4];
        const bool ds_read = ds_free[fresh.place()].over(fresh.emptied());
        auto to = mine_of_ds;
        to.address = static_cast<u32>(forgotten(static_cast<int>(to.address)));  // or its rows' addresses are kept, and spill
        const FarRows<QUERIES, P, KeyTile> far(p, block, now, stat - quad, some_far);
        if constexpr (TERMS == 0) far.lower(s, 0, scale);
        const auto weigh = [&](int from) {
          if constexpr (TERMS == 0) {
            weigh_and_differ<T>(p16, ds16, s, ds, from, early, stat, c);
          } else {
            const int ahead = now.at * QUERIES + 2 * quad + static_cast<int>(p.shift) - j;
            if (terms.capped()) weigh_and_differ<T, true>(p16, ds16, s, ds, from, stat, far, terms, static_cast<float>(ahead));
            else weigh_and_differ<T, false>(p16, ds16, s, ds, from, stat, far, terms, static_cast<float>(ahead));
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
        more = now.at >= block.first;
        if (HOMES == 1 && !more) values_free[0].arrive_as_warp();
        rows_there[next.place()].wait(next.filled(), rows_in);
        wgmma_publish();  // ds, and what came by cp.async
        ds_there[fresh.place()].arrive_as_warp();
        ds_there[stale.place()].wait(stale.filled(), ds_in);
        begin_window();
        const bool part_read = part_free[group][before.place()].over(before.filled());
        float dq[WIDTH / 8][4];  // at the first step of nothing
        const u64 rows = forgotten(root) + to_queries + store.place() * (TILE / 8);
        add_product(dv, p16, rows + to_grads);
        start_dq(dq, stale.place());
        if constexpr (HELD) add_product(dk, ds16, rows);
        else add_product(dk, forgotten(root) + score + fresh.place() * (SCORES / 8) + group * (64 * 8), rows);
        wgmma_wait<1>();
        hold(dq);
        hold(p16);
        ds_free[stale.place()].arrive_as_warp();
        leave_dq(dq, before, part_read);
        start_step(next, HOMES == 2 || more ? to_values + home_of(n) : 0);  // of keys where values may be the next item's
        end_window();
        look_up(next);
        part_there[group][steps % 2].arrive_as_warp();
        wgmma_wait<0>();
        hold(s);
        hold(ds);
        if constexpr (HELD) hold(ds16);
        rows_free[store.place()].arrive_as_warp();
        ++steps;
      } while (more);
      const Round<2> stale{steps};  // dq of the last step
      float dq[WIDTH / 8][4];
      if (!LENT) rows_free[Round<STAGES>{steps}.place()].arrive_as_warp();
      ds_there[stale.place()].wait(stale.filled());
      begin_window();
      start_dq(dq, stale.place());
      wgmma_wait<0>();
      hold(dq);
      keys_free[home.place()].arrive_as_warp();
      if (HOMES == 2) values_free[home.place()].arrive_as_warp();
      ds_free[stale.place()].arrive_as_warp();
      leave_dq(dq, {steps - 1}, false);
      part_there[group][steps % 2].arrive_as_warp();
      end_window();
      if (group == 0) begin_window();  // as often as the other has ended one

      hold(dk);
      hold(dv);
      ds_free[stale.place()].wait(stale.filled());
      T* const own = scores + key0 * 64;  // the warp's rows of the first ds; those of the other stand SCORES further
      T* const lent = (group == 0 ? queries : grads) + Round<STAGES>{steps}.place() * TILE + key0 % 64 * D;
      T* const to_dk[2] = {own, own + (LENT ? SCORES : 8 * D)};
      T* const to_dv[2] = {LENT ? lent : own + SCORES, (LENT ? lent : own + SCORES) + 8 * D};
      const auto rows_of_dk = of_dk(), rows_of_dv = of_dv();
      rows_of_dk.put(dk, scale, to_dk);
      rows_of_dv.put(dv, 1.0f, to_dv);
      bulk_begin();
      __syncwarp();
      rows_of_dk.template store<D / 8>(to_dk);
      rows_of_dv.template store<D / 8>(to_dv);
      bulk_commit();
      ++steps;
    } else {
      values_free[home.place()].arrive_as_warp();
      keys_free[home.place()].arrive_as_warp();
      of_dk().clear();
      of_dv().clear();
    }
    items.leave(n);
  }
}

}  // namespace baracuda
