// flash_sdpa_backward_wgmma    the gradients of flash_sdpa_backward_mma (formula there) on wgmma, for masks and
//   dropout, and for formulas with their block masks; all else goes to flash_sdpa_backward_pipelined and _relay.
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

// Starts acc += x y for 64 keys and all columns of y, whose descriptor is `rows`; x are A fragments.
template <class T, int QUERIES, int OWN, int M>
BARACUDA_D void start_gradient(float (&acc)[OWN][8][4], u32 (&x)[M][4], u64 rows) {
  hold(x);
  wgmma_fence();
#pragma unroll
  for (int i = 0; i < QUERIES; i += 16) {
#pragma unroll
    for (int w = 0; w < OWN; ++w) {
      wgmma<T, true>(acc[w], x[i / 16], rows + w * (QUERIES * 8) + i / 16 * k_across, 1);
    }
  }
  wgmma_commit();
}

// What a block works on, and its shared memory.
template <class T, int D, int SPLIT, int STAGES, class Where, class P> struct WgmmaBlock {
  static constexpr int THREADS = 256, KEYS = 128 / SPLIT, QUERIES = 64, TILE = QUERIES * D, SLAB = QUERIES / SPLIT;
  static constexpr int OWN = D / 64 / SPLIT;  // panels of columns of dk and dv of a group
  static constexpr int SCORES = SPLIT * KEYS * QUERIES, SETS = STAGES == 3 ? 2 : 1;  // stages of ds (and p)
  // columns of dq in one product, alternating between the groups
  static constexpr int WIDTH = D == 64 ? 32 : 64, UNITS = D / WIDTH;
  static_assert(D % (64 * SPLIT) == 0 && UNITS % 2 == 0, "the groups have as many panels and units");
  static_assert(STAGES == 2 || STAGES == 3, "a tile is loaded a step ahead");
  using Scores = float[SLAB / 8][4];
  using Fragments = u32[SLAB / 16][4];
  using Gradient = float[OWN][8][4];
  using Terms = TermsOf<2, float, true, P>;
  using Biases = Staged<Terms, SLAB>;

  const P& p;
  T *keys, *values;    // [D / 64][KEYS][64], at the end dk and dv
  T *queries, *grads;  // [STAGES][D / 64][QUERIES][64]: q and dy
  T* scores;           // [SETS][SPLIT][KEYS][QUERIES]: ds, transposed; with SPLIT 2 also p
  Stats* stats;        // [STAGES][QUERIES / 2]
  u32* ticket;
  BARACUDA_D WgmmaBlock(const P& p, T* shared)
      : p(p), keys(shared + (1024 - smem_address(shared) % 1024) % 1024 / sizeof(T)), values(keys + KEYS * D),
        queries(values + KEYS * D), grads(queries + STAGES * TILE), scores(grads + STAGES * TILE),
        stats(reinterpret_cast<Stats*>(scores + SETS * SCORES)),
        ticket(reinterpret_cast<u32*>(stats + STAGES * QUERIES / 2)) {}

  BARACUDA_D void load_keys(const KeyTile& tile, i64 row) const {
    tile::copy_panels<KEYS, D, THREADS>(keys, rows_of<T>(p.k, p.stride[1], tile.b, tile.kv, row), p.stride[1][2],
                                        tile.left, p.d_k, p.wide & 2);
    tile::copy_panels<KEYS, D, THREADS>(values, rows_of<T>(p.v, p.stride[2], tile.b, tile.kv, row), p.stride[2][2],
                                        tile.left, p.d_v, p.wide & 4);
    cp_async_commit();
  }
  // Loads the tile of q and dy of step `ahead`, and goes on to the next one.
  BARACUDA_D void load_rows(const KeyTile& tile, Walk& ahead, Search& search, int& loaded) const {
    if (ahead.at < tile.first) {
      cp_async_commit();  // an empty group, as waits for a mask count groups
      return;
    }
    const i64 q0 = static_cast<i64>(ahead.at) * QUERIES;
    const int rows = inside<QUERIES>(tile.of.query_len, q0);
    const u32 h = tile.kv * p.group + ahead.head;
    const T* const q = rows_of<T>(p.q, p.stride[0], tile.b, h, tile.of.query_row + q0);
    const T* const dy = rows_of<T>(p.dy, p.stride[3], tile.b, h, tile.of.query_row + q0);
    tile::copy_panels<QUERIES, D, THREADS>(queries + loaded * TILE, q, p.stride[0][2], rows, p.d_k, p.wide & 1);
    tile::copy_panels<QUERIES, D, THREADS>(grads + loaded * TILE, dy, p.stride[3][2], rows, p.d_v, p.wide & 8);
    const Stats* const from = static_cast<const Stats*>(p.stats) +
                              ((tile.batch(p) * p.num_heads + h) * p.padded + tile.of.before * QUERIES + q0) / 2;
    if (threadIdx.x < QUERIES / 2) cp_async_16(stats + loaded * (QUERIES / 2) + threadIdx.x, from + threadIdx.x);
    cp_async_commit();
    ahead.step(p.group);
    skip_unset<QUERIES, KEYS, Where>(p, tile, search, ahead);
    loaded = loaded + 1 == STAGES ? 0 : loaded + 1;
  }

  // Which scores dropout keeps, a bit each; and the mask comes to where `weigh` reads it.
  BARACUDA_D static u32 mask_scores(const Terms& terms, Biases& biases, int i, int j, bool mask_stays, int warp_i,
                                    int warp_j) {
    u32 kept = 0;
    if (terms.drops()) kept = terms.traded_by_columns(terms.template made_by_columns<SLAB / 8>(i, j));
    cp_async_wait<1>();  // the mask's copies, not those of the next tile
    if (terms.masked() && !(biases.same && mask_stays)) biases.put(warp_i, warp_j);
    return kept;
  }
  BARACUDA_D static void put_scores(T* to, const Fragments& x, int key0, int i0) {
#pragma unroll
    for (int n = 0; n < SLAB / 16; ++n) put_fragment<64>(to, key0, i0 + 16 * n, x[n]);
  }

  BARACUDA_D void pass_on(const KeyTile& tile, const Walk& step) const {
    pass_turn(counter_at(p, tile, step), turn_among<QUERIES, KEYS, Where>(p, tile, step) + 1);
  }
  // Passes on the last step's turn, takes this step's where that is still to do, and glances at the next one's.
  BARACUDA_D void take_turns(const KeyTile& tile, const Walk& before, const Walk& now, const Walk& next, u32 turn,
                             u32& glance) const {
    if (threadIdx.x == 128 && before.at >= 0) pass_on(tile, before);
    if (SPLIT == 2 && threadIdx.x == 0) {
      if (glance == turn) accept_turn();
      else await_turn(counter_at(p, tile, now), turn);
    }
    if (threadIdx.x == 0 && next.at >= tile.first) glance = current_turn(counter_at(p, tile, next));
  }

  // Stores dk and dv by way of the stages of keys and values.
  BARACUDA_D void store(const KeyTile& tile, i64 row, const Gradient& dk, const Gradient& dv, int panel0, int key0,
                        float scale, float again) const {
#pragma unroll
    for (int w = 0; w < OWN; ++w) {
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        const int panel = (panel0 + w) * KEYS * 64;
        tile::put<64>(keys + panel, key0, 8 * n, dk[w][n], scale, scale);
        tile::put<64>(values + panel, key0, 8 * n, dv[w][n], again, again);
      }
    }
    __syncthreads();
#pragma unroll
    for (int col = 0; col < D; col += 64) {
      if (p.dk != nullptr) {
        T* const out = rows_of<T>(p.dk, p.stride[5], tile.b, tile.kv, row);
        tile::copy_out<KEYS, 64, THREADS>(out + col, p.stride[5][2], keys + col * KEYS, threadIdx.x, tile.left,
                                          p.d_k - col, p.wide & 32);
      }
      if (p.dv != nullptr) {
        T* const out = rows_of<T>(p.dv, p.stride[6], tile.b, tile.kv, row);
        tile::copy_out<KEYS, 64, THREADS>(out + col, p.stride[6][2], values + col * KEYS, threadIdx.x, tile.left,
                                          p.d_v - col, p.wide & 64);
      }
    }
  }
};

}  // namespace attention

template <class T, int D, int SPLIT, int STAGES, class Where, int TERMS, class P>
BARACUDA_D void flash_gradients_wgmma(const P& p) {
  using namespace attention;
  static_assert(TERMS == 2, "for masks and dropout");
  using Block = WgmmaBlock<T, D, SPLIT, STAGES, Where, P>;
  constexpr int KEYS = Block::KEYS, QUERIES = Block::QUERIES, TILE = Block::TILE, SCORES = Block::SCORES;
  constexpr int WIDTH = Block::WIDTH, OWN = Block::OWN;
  constexpr u64 to_values = KEYS * D / 8, to_grads = STAGES * TILE / 8;
  BARACUDA_DYNAMIC_SMEM(T, shared);
  const Block block(p, shared);

  if (threadIdx.x == 0) *block.ticket = atomicAdd(static_cast<u32*>(p.turns), 1u);
  __syncthreads();
  const KeyTile tile = Where::template key_tile<QUERIES, KEYS>(p, *block.ticket);
  if (Where::surplus && tile.left == 0) return;
  const i64 k0 = static_cast<i64>(tile.tile) * KEYS, key_row = tile.of.key_row + k0;
  block.load_keys(tile, key_row);

  const int warp = static_cast<int>(threadIdx.x) / warp_size;
  const int group = D == 64 ? warpgroup() : warp / 4;  // whichever measured faster at that D
  // first key and query of the warp's scores, and first panel of its columns of dk and dv
  const int key0 = (SPLIT == 1 ? warp : warp % 4) * 16, i0 = SPLIT == 1 ? 0 : group * Block::SLAB;
  const int panel0 = SPLIT == 1 ? 0 : group * OWN;
  const u64 key = wgmma_operand(block.keys), mine = key + (SPLIT == 1 ? group * (64 * 8) : 0);  // the group's keys
  const u64 query = wgmma_operand(block.queries), score = wgmma_operand(block.scores);
  typename Block::Terms terms(p, p.query_len, p.key_len, p.shift);
  terms.settle(tile.of);
  typename Block::Biases biases(terms, block.ticket + 4);
  const int warp_j = static_cast<int>(k0) + key0, j = warp_j + lane_id() / 4;
  const bool ordered = p.dq != nullptr && !p.any_order;

  typename Block::Gradient dk = {}, dv = {};
  typename Block::Scores s, ds;
  typename Block::Fragments p16, ds16;
  Walk now{tile.last, 0}, before{-1, 0};  // the current step, and the last one
  Search next_search, ahead_search;
  skip_unset<QUERIES, KEYS, Where>(p, tile, next_search, now);
  Walk ahead = now;  // the step to load
  int stage = 0, loaded = 0;
  u32 set = 0;
  u32 glance = 0;  // of thread 0: the turn as read one step ahead

  // The first tile of queries, its mask, the tile after it
  terms.enter(tile.b, tile.kv * p.group + now.head);
  block.load_rows(tile, ahead, ahead_search, loaded);
  cp_async_wait<0>();
  wgmma_publish();
  __syncthreads();
  if (terms.masked() && now.at >= tile.first) biases.fetch(now.at * QUERIES + i0, warp_j);
  cp_async_commit();
  block.load_rows(tile, ahead, ahead_search, loaded);

#pragma unroll 1
  while (now.at >= tile.first) {
    const Mask mask = mask_at<QUERIES, KEYS>(p, tile, now);
    const u32 turn = turn_among<QUERIES, KEYS, Where>(p, tile, now);
    Walk next = now;
    next.step(p.group);
    skip_unset<QUERIES, KEYS, Where>(p, tile, next_search, next);
    BlocksOf<Where, P>(p, tile.b, tile.kv * p.group + now.head).settle(terms, now.at * QUERIES, QUERIES, k0, KEYS);
    const Stats* const stat = block.stats + stage * (QUERIES / 2);
    const FarRows<QUERIES, P, KeyTile> far(p, tile, now, stat);
    const u64 rows = query + stage * (TILE / 8), ds_rows = score + set * (SCORES / 8);
    T* const ds_tile = block.scores + set * SCORES;

    // Scores and dP; with STAGES 2 the next tile is loaded meanwhile
    wgmma_fence();
    start_scores<T, D, KEYS, QUERIES>(s, mine, rows + i0 * 8);
    start_scores<T, D, KEYS, QUERIES>(ds, mine + to_values, rows + to_grads + i0 * 8);
    if (STAGES == 2 && before.at >= 0) block.load_rows(tile, ahead, ahead_search, loaded);
    const int i = now.at * QUERIES + i0 + lane_id() % 4 * 2;
    const u32 kept = Block::mask_scores(terms, biases, i, j, before.at >= 0, now.at * QUERIES + i0, warp_j);

    // Weights, while dP is multiplied; dv, or p to shared memory
    wgmma_wait<1>();
    hold(s);
    weigh<T>(s, p16, kept, far, i0, key0, mask, terms, biases, static_cast<float>(i + terms.shift - j));
    if constexpr (SPLIT == 1) {
      start_gradient<T, QUERIES>(dv, p16, rows + to_grads);
      if (ordered && threadIdx.x == 0 && glance == turn) accept_turn();
      wgmma_wait<1>();
    } else {
      Block::put_scores(ds_tile + KEYS * QUERIES, p16, key0, i0);
      wgmma_wait<0>();
    }

    // ds = weights (dP - delta); dk
    hold(ds);
    make_ds<T>(ds, ds16, s, kept, stat, i0, key0, mask, terms, i, j);
    Block::put_scores(ds_tile, ds16, key0, i0);
    if constexpr (SPLIT == 1) {
      start_gradient<T, QUERIES>(dk, ds16, rows);
      if (ordered && threadIdx.x == 0 && glance != turn) await_turn(counter_at(p, tile, now), turn);
    }

    // Wait: ds is written, with STAGES 3 the next tile is loaded, and all have read the tile before
    if (STAGES == 3) cp_async_wait<0>();
    wgmma_publish();
    __syncthreads();
    const auto look_ahead = [&] {
      if (p.group > 1) terms.enter(tile.b, tile.kv * p.group + next.head);
      if (terms.masked() && next.at >= tile.first && !biases.same) biases.fetch(next.at * QUERIES + i0, warp_j);
      cp_async_commit();
      if (STAGES == 3) block.load_rows(tile, ahead, ahead_search, loaded);
    };
    // Waits for the next tile: before the additions to dq, which the fence would wait for. Among the products NVRTC
    // 12.9 crashes on it.
    const auto tile_came = [] {
      if (STAGES == 3) return;
      cp_async_wait<0>();
      wgmma_publish();
    };

    // dq, of which the groups take turns at units of columns; with SPLIT 2 dv and dk before. In a function of their own
    // the assembler serialises these products.
    wgmma_fence();
    if constexpr (SPLIT == 2) {
      add_shared_products<T, QUERIES>(dv, dk, ds_rows + KEYS * QUERIES / 8, ds_rows, rows + panel0 * (QUERIES * 8),
                                      to_grads);
    }
    if (p.dq != nullptr) {
#pragma unroll
      for (int unit = 0; unit < Block::UNITS; unit += 2) {
        float dq[WIDTH / 8][4];
        start_dq<T, KEYS>(dq, ds_rows, key + (WIDTH == 32 ? group * 4 : (unit + group) * (KEYS * 8)));
        if (ordered && unit == 0) block.take_turns(tile, before, now, next, turn, glance);
        if (unit == 0) look_ahead();
        wgmma_wait<0>();
        if (unit == 0) tile_came();
        if (SPLIT == 2 && ordered && unit == 0) __syncthreads();
        hold(dq);
        add_to_dq<T, D, QUERIES, KEYS, Where>(p, tile, now, warp % 4 * 16, (unit + group) * WIDTH, dq);
        if (unit + 2 < Block::UNITS) wgmma_fence();
      }
    } else {
      wgmma_commit();
      look_ahead();
      wgmma_wait<0>();
      tile_came();
    }

    // Arrive: with STAGES 2 the tile is free
    hold(p16);
    hold(ds16);
    if (STAGES == 2) __syncthreads();
    stage = stage + 1 == STAGES ? 0 : stage + 1;
    before = now;
    now = next;
    if (Block::SETS == 2) set ^= 1;
  }

  // All have read keys and values: store dk and dv
  wgmma_wait<0>();
#pragma unroll
  for (int w = 0; w < OWN; ++w) {
    hold(dk[w]);
    hold(dv[w]);
  }
  cp_async_wait<0>();
  __syncthreads();
  if (ordered && before.at >= 0 && threadIdx.x == 0) block.pass_on(tile, before);
  block.store(tile, key_row, dk, dv, panel0, key0, static_cast<float>(p.scale), terms.again);
}

}  // namespace baracuda
