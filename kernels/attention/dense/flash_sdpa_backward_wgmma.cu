// flash_sdpa_backward_wgmma    the gradients of flash_sdpa_backward_mma (formula there) on wgmma, for masks and
//   dropout; all else goes to flash_sdpa_backward_pipelined and _relay.
//
// Schedule. A block is two warpgroups with one tile of keys; it walks the tiles of queries as flash_sdpa_backward_mma
// does. Tiles in shared memory are panels of 64 columns. The tensor cores read every operand there but p and ds, which
// as left operands of dv and dk stay in registers. With SPLIT 1 a group has 64 keys of its own and all columns of their
// dk and dv. With SPLIT 2 both groups share 64 keys, each with half of the queries of a score tile and half of the
// columns of dk and dv, and p and ds go through shared memory. Products of dq alternate between the groups.
//
// A step has one barrier (with STAGES 2 two, and one more where a turn is taken) and ends with no product in flight, as
// the assembler serialises the products of a loop that carries one over. Exponentials overlap the product dy v, ds
// overlaps dv, the barrier overlaps dk. The turn is looked up one step ahead and passed on one step late, when its
// additions are long done; loads start after it, as it would wait for them too. With STAGES 2 the next tile is loaded
// during the scores, and the turn is awaited during dv, dk and dq.
//
// Order of sums: that of flash_sdpa_backward_mma, by this kernel's tiles. Measurements:
// docs/design/attention-backward.md.
#include "attention/dense/flash_sdpa_backward_products.cuh"
#include "attention/dense/flash_sdpa_backward_terms.cuh"

namespace baracuda {
namespace attention {

// Starts dv += p dy and dk += ds q for OWN panels of columns from `rows` on, p and ds in shared memory.
template <class T, int QUERIES, int OWN>
BARACUDA_D void add_shared_products(float (&dv)[OWN][8][4], float (&dk)[OWN][8][4], u64 weights, u64 ds, u64 rows,
                                    u64 to_grads) {
#pragma unroll
  for (int i = 0; i < QUERIES; i += 16) {
#pragma unroll
    for (int w = 0; w < OWN; ++w) {
      const u64 from = rows + w * (QUERIES * 8) + i / 16 * k_across;
      wgmma<T, false, true>(dv[w], weights + i / 16 * k_within, from + to_grads, 1);
      wgmma<T, false, true>(dk[w], ds + i / 16 * k_within, from, 1);
    }
  }
}
}  // namespace attention

template <class T, int D, int SPLIT, int STAGES, class Where, int TERMS, class P>
BARACUDA_D void flash_gradients_wgmma(const P& p) {
  using namespace attention;
  constexpr int THREADS = 256, KEYS = 128 / SPLIT, QUERIES = 64, TILE = QUERIES * D, SLAB = QUERIES / SPLIT;
  constexpr int PANELS = D / 64, OWN = PANELS / SPLIT;  // columns of dk and dv of a group
  // columns of dq in one product, alternating between the groups
  constexpr int WIDTH = D == 64 ? 32 : 64, UNITS = D / WIDTH;
  constexpr int SCORES = SPLIT * KEYS * QUERIES, SETS = STAGES == 3 ? 2 : 1;  // stages of ds (and p)
  constexpr u32 SIZE = sizeof(T);
  static_assert(D % (64 * SPLIT) == 0 && UNITS % 2 == 0, "the groups have as many panels and units");
  static_assert(STAGES == 2 || STAGES == 3, "a tile is loaded a step ahead");
  BARACUDA_DYNAMIC_SMEM(T, shared);
  T* const keys = shared + (1024 - smem_address(shared) % 1024) % 1024 / SIZE;  // [PANELS][KEYS][64], at the end dk
  T* const values = keys + KEYS * D;                                            // the same, at the end dv
  T* const queries = values + KEYS * D;                                         // [STAGES][PANELS][QUERIES][64]
  T* const grads = queries + STAGES * TILE;                                     // the same: dy
  T* const scores = grads + STAGES * TILE;  // [SETS][SPLIT][KEYS][QUERIES]: ds, transposed; with SPLIT 2 also p
  Stats* const stats = reinterpret_cast<Stats*>(scores + SETS * SCORES);  // [STAGES][QUERIES / 2]
  u32* const ticket = reinterpret_cast<u32*>(stats + STAGES * QUERIES / 2);

  if (threadIdx.x == 0) *ticket = atomicAdd(static_cast<u32*>(p.turns), 1u);
  __syncthreads();
  const KeyTile block = Where::template key_tile<QUERIES, KEYS>(p, *ticket);
  if (Where::surplus && block.left == 0) return;
  const i64 k0 = static_cast<i64>(block.tile) * KEYS, key_row = block.of.key_row + k0;
  tile::copy_panels<KEYS, D, THREADS>(keys, rows_of<T>(p.k, p.stride[1], block.b, block.kv, key_row), p.stride[1][2],
                                      block.left, p.d_k, p.wide & 2);
  tile::copy_panels<KEYS, D, THREADS>(values, rows_of<T>(p.v, p.stride[2], block.b, block.kv, key_row), p.stride[2][2],
                                      block.left, p.d_v, p.wide & 4);
  cp_async_commit();

  const int warp = static_cast<int>(threadIdx.x) / warp_size;
  const int group = D == 64 ? warpgroup() : warp / 4;  // whichever measured faster at that D
  // first key and query of the warp's scores
  const int key0 = (SPLIT == 1 ? warp : warp % 4) * 16, i0 = SPLIT == 1 ? 0 : group * SLAB;
  const int panel0 = SPLIT == 1 ? 0 : group * OWN;
  const u64 key = wgmma_operand(keys), mine = key + (SPLIT == 1 ? group * (64 * 8) : 0);  // the group's keys
  const u64 query = wgmma_operand(queries), score = wgmma_operand(scores);
  constexpr u64 to_values = KEYS * D / 8, to_grads = STAGES * TILE / 8;
  const float c = static_cast<float>(p.scale * 1.4426950408889634), scale = static_cast<float>(p.scale);

  float dk[OWN][8][4], dv[OWN][8][4];
#pragma unroll
  for (int w = 0; w < OWN; ++w) {
#pragma unroll
    for (int n = 0; n < 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) dk[w][n][e] = dv[w][n][e] = 0.0f;
    }
  }

  using Added = TermsOf<TERMS, float, true, P>;
  Added terms(p, p.query_len, p.key_len, p.shift);
  conditional<TERMS != 0, Staged<Added, SLAB>, Unbiased> biases(terms, ticket + 4);
  const int warp_j = static_cast<int>(k0) + key0, j = warp_j + lane_id() / 4;
  if constexpr (TERMS != 0) terms.enter(block.b, block.kv * p.group);
  const auto enter = [&](const Walk& step) {
    if constexpr (TERMS != 0) {
      if (p.group > 1) terms.enter(block.b, block.kv * p.group + step.head);
      if constexpr (TERMS == 2) {
        if (terms.masked() && step.at >= block.first && !biases.same) biases.fetch(step.at * QUERIES + i0, warp_j);
        cp_async_commit();
      }
    }
  };

  Walk now{block.last, 0}, ahead = now;  // the current step, and the one to load
  int stage = 0, loaded = 0;
  u32 set = 0;
  const auto load_ahead = [&] {
    if (ahead.at < block.first) {
      if (TERMS == 2) cp_async_commit();  // an empty group, as waits for a mask count groups
      return;
    }
    const i64 q0 = static_cast<i64>(ahead.at) * QUERIES;
    const int rows = inside<QUERIES>(block.of.query_len, q0);
    const u32 h = block.kv * p.group + ahead.head;
    const T* const q = rows_of<T>(p.q, p.stride[0], block.b, h, block.of.query_row + q0);
    const T* const dy = rows_of<T>(p.dy, p.stride[3], block.b, h, block.of.query_row + q0);
    tile::copy_panels<QUERIES, D, THREADS>(queries + loaded * TILE, q, p.stride[0][2], rows, p.d_k, p.wide & 1);
    tile::copy_panels<QUERIES, D, THREADS>(grads + loaded * TILE, dy, p.stride[3][2], rows, p.d_v, p.wide & 8);
    const Stats* const from = static_cast<const Stats*>(p.stats) +
                              ((block.b * p.num_heads + h) * p.padded + block.of.before * QUERIES + q0) / 2;
    if (threadIdx.x < QUERIES / 2) cp_async_16(stats + loaded * (QUERIES / 2) + threadIdx.x, from + threadIdx.x);
    cp_async_commit();
    ahead.step(p.group);
    loaded = loaded + 1 == STAGES ? 0 : loaded + 1;
  };
  float s[SLAB / 8][4], ds[SLAB / 8][4];
  u32 p16[SLAB / 16][4], ds16[SLAB / 16][4];
  const bool ordered = p.dq != nullptr && !p.any_order;
  Walk before{-1, 0};
  u32 glance = 0;  // of thread 0: the turn as read one step ahead
  load_ahead();
  cp_async_wait<0>();
  wgmma_publish();
  __syncthreads();
  if constexpr (TERMS == 2) {
    if (terms.masked() && block.last >= block.first) biases.fetch(block.last * QUERIES + i0, warp_j);
    cp_async_commit();
  }
  load_ahead();
#pragma unroll 1
  while (now.at >= block.first) {
    const Mask mask = mask_at<QUERIES, KEYS>(p, block, now);
    const u32 turn = turn_at<QUERIES, KEYS>(p, block, now);
    Walk next = now;
    next.step(p.group);
    const Stats* const stat = stats + stage * (QUERIES / 2);
    const FarRows<QUERIES, P, KeyTile> far(p, block, now, stat);
    const u64 rows = query + stage * (TILE / 8), ds_rows = score + set * (SCORES / 8);
    T* const ds_tile = scores + set * SCORES;
    [[maybe_unused]] T* const p_tile = ds_tile + KEYS * QUERIES;

    // Scores and dP
    wgmma_fence();
    start_scores<T, D, KEYS, QUERIES>(s, mine, rows + i0 * 8);
    start_scores<T, D, KEYS, QUERIES>(ds, mine + to_values, rows + to_grads + i0 * 8);
    if (STAGES == 2 && before.at >= 0) load_ahead();  // during the products

    // Masks and dropout, during the products; weights; dv
    [[maybe_unused]] const int i = now.at * QUERIES + i0 + lane_id() % 4 * 2;
    [[maybe_unused]] u32 kept = 0;
    if constexpr (TERMS == 2) {
      if (terms.drops()) kept = terms.traded_by_columns(terms.template made_by_columns<SLAB / 8>(i, j));
      cp_async_wait<1>();  // the mask's copies, not those of the next tile
      if (terms.masked() && !(biases.same && before.at >= 0)) biases.put(now.at * QUERIES + i0, warp_j);
    }
    wgmma_wait<1>();
    hold(s);
    if constexpr (TERMS != 0) {
      weigh<T>(s, p16, kept, far, i0, key0, mask, terms, biases, static_cast<float>(i + terms.shift - j));
    } else {
      far.lower(s, i0, scale);
      weigh(s, stat, i0, key0, mask, c);
      to_fragments<T>(p16, s);
      far.template spare<T>(s);
    }
    if constexpr (SPLIT == 1) {
      hold(p16);
      wgmma_fence();
#pragma unroll
      for (int i = 0; i < QUERIES; i += 16) {
#pragma unroll
        for (int w = 0; w < OWN; ++w) {
          wgmma<T, true>(dv[w], p16[i / 16], rows + to_grads + w * (QUERIES * 8) + i / 16 * k_across, 1);
        }
      }
      wgmma_commit();
      if (ordered && threadIdx.x == 0 && glance == turn) accept_turn();
      wgmma_wait<1>();
    } else {
#pragma unroll
      for (int n = 0; n < SLAB / 16; ++n) put_fragment<64>(p_tile, key0, i0 + 16 * n, p16[n]);
      wgmma_wait<0>();
    }

    // ds = weights (dP - delta); dk
    hold(ds);
    if constexpr (TERMS != 0) {
      make_ds<T>(ds, ds16, s, kept, stat, i0, key0, mask, terms, i, j);
    } else {
      make_ds(ds, s, stat, i0, key0, mask);
      to_fragments<T>(ds16, ds);
    }
#pragma unroll
    for (int n = 0; n < SLAB / 16; ++n) put_fragment<64>(ds_tile, key0, i0 + 16 * n, ds16[n]);
    if constexpr (SPLIT == 1) {
      hold(ds16);
      wgmma_fence();
#pragma unroll
      for (int i = 0; i < QUERIES; i += 16) {
#pragma unroll
        for (int w = 0; w < OWN; ++w) {
          wgmma<T, true>(dk[w], ds16[i / 16], rows + w * (QUERIES * 8) + i / 16 * k_across, 1);
        }
      }
      wgmma_commit();
    }
    if (SPLIT == 1 && ordered && threadIdx.x == 0 && glance != turn) await_turn(counter_at(p, block, now), turn);
    if (STAGES == 3) cp_async_wait<0>();
    wgmma_publish();
    __syncthreads();  // ds is written, with STAGES 3 the next tile is loaded, and all have read the tile before
    const auto look_ahead = [&] {
      enter(next);
      if (STAGES == 3) load_ahead();
    };
    // Waits for the next tile: before the additions to dq, which the fence would wait for. Among the products NVRTC
    // 12.9 crashes on it.
    const auto tile_came = [] {
      if (STAGES == 3) return;
      cp_async_wait<0>();
      wgmma_publish();
    };

    // dq, of which the groups take turns at units of columns; with SPLIT 2 dv and dk before
    const int after = stage + 1 == STAGES ? 0 : stage + 1;
    wgmma_fence();
    if constexpr (SPLIT == 2) {
      add_shared_products<T, QUERIES>(dv, dk, ds_rows + KEYS * QUERIES / 8, ds_rows, rows + panel0 * (QUERIES * 8),
                                      to_grads);
    }
    if (p.dq != nullptr) {
#pragma unroll
      for (int unit = 0; unit < UNITS; unit += 2) {
        float dq[WIDTH / 8][4];
        start_dq<T, KEYS>(dq, ds_rows, key + (WIDTH == 32 ? group * 4 : (unit + group) * (KEYS * 8)));
        if (ordered && unit == 0) {
          if (threadIdx.x == 128 && before.at >= 0) {
            pass_turn(counter_at(p, block, before), turn_at<QUERIES, KEYS>(p, block, before) + 1);
          }
          if (SPLIT == 2 && threadIdx.x == 0) {
            if (glance == turn) accept_turn();
            else await_turn(counter_at(p, block, now), turn);
          }
          if (threadIdx.x == 0 && next.at >= block.first) glance = current_turn(counter_at(p, block, next));
        }
        if (unit == 0) look_ahead();
        wgmma_wait<0>();
        if (unit == 0) tile_came();
        if (SPLIT == 2 && ordered && unit == 0) __syncthreads();
        hold(dq);
        add_to_dq<T, D, QUERIES, KEYS>(p, block, now, warp % 4 * 16, (unit + group) * WIDTH, dq);
        if (unit + 2 < UNITS) wgmma_fence();
      }
    } else {
      wgmma_commit();
      look_ahead();
      wgmma_wait<0>();
      tile_came();
    }
    hold(p16);
    hold(ds16);
    if (STAGES == 2) __syncthreads();
    stage = after;
    before = now;
    now = next;
    if (SETS == 2) set ^= 1;
  }

  // Store dk and dv by way of keys and values
  wgmma_wait<0>();
#pragma unroll
  for (int w = 0; w < OWN; ++w) {
    hold(dk[w]);
    hold(dv[w]);
  }
  cp_async_wait<0>();
  __syncthreads();  // all have read k and v
  if (ordered && before.at >= 0 && threadIdx.x == 0) {
    pass_turn(counter_at(p, block, before), turn_at<QUERIES, KEYS>(p, block, before) + 1);
  }
#pragma unroll
  for (int w = 0; w < OWN; ++w) {
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      const int panel = (panel0 + w) * KEYS * 64;
      tile::put<64>(keys + panel, key0, 8 * n, dk[w][n], scale, scale);
      tile::put<64>(values + panel, key0, 8 * n, dv[w][n], terms.again, terms.again);
    }
  }
  __syncthreads();
#pragma unroll
  for (int col = 0; col < D; col += 64) {
    if (p.dk != nullptr) {
      T* const out = rows_of<T>(p.dk, p.stride[5], block.b, block.kv, key_row);
      tile::copy_out<KEYS, 64, THREADS>(out + col, p.stride[5][2], keys + col * KEYS, threadIdx.x, block.left,
                                        p.d_k - col, p.wide & 32);
    }
    if (p.dv != nullptr) {
      T* const out = rows_of<T>(p.dv, p.stride[6], block.b, block.kv, key_row);
      tile::copy_out<KEYS, 64, THREADS>(out + col, p.stride[6][2], values + col * KEYS, threadIdx.x, block.left,
                                        p.d_v - col, p.wide & 64);
    }
  }
}

}  // namespace baracuda
