// flash_sdpa_backward_mma    p[i,j] = exp(scale q[i] k[j] - lse[i]);   ds[i,j] = p[i,j] (dy[i] v[j] - delta[i]),
//   delta[i] = dy[i] y[i];   dv[j] = sum_i p[i,j] dy[i];   dk[j] = scale sum_i ds[i,j] q[i];
//   dq[i] = scale sum_j ds[i,j] k[j];   with TERMS also what terms.cuh adds to the scores and does to the weights
//
// Two kernels. flash_prepare: (lse log2(e), delta) of every row. flash_gradients (Dao 2023, FlashAttention-2): a block
// has a tile of keys of one key head in swizzled shared memory. It walks the tiles of queries from the last to the
// first that sees the keys and, at each, the query heads that share the key head; dk and dv stay in registers. Scores
// are computed transposed, keys along the warps, so that p and ds in registers are already the left operands of dv and
// dk; ds also goes through shared memory as the left operand of dq. With SPLIT 2 two warps share their keys, each with
// half of the queries of a score tile and half of the columns of dk and dv, and p goes through shared memory too. With
// more, past head_dim 256, each has as many of the columns, and the first of them the slabs of scores.
//
// dq is summed over tiles of keys in float, in the order of the tiles: each tile of queries of a head has a counter
// that says whose turn it is (turns.cuh). The first tile of keys stores, the last rounds to T. Blocks draw their tile
// from a ticket counter, so those a block waits for have started; they walk the queries alike, one step apart. Tickets
// go through p.chunk heads, then to their next tile of keys: few blocks that run together share a head, and what they
// read and add stays in the L2 cache. The order of every sum is fixed by (element, D, tiling) and by where tiles start.
#include "attention/dense/flash_sdpa_backward_terms.cuh"

namespace baracuda {
namespace attention {

template <int MT, int N> BARACUDA_D void clear(float (&s)[MT][N][4]) {
#pragma unroll
  for (int m = 0; m < MT; ++m) {
#pragma unroll
    for (int n = 0; n < N; ++n) s[m][n][0] = s[m][n][1] = s[m][n][2] = s[m][n][3] = 0.0f;
  }
}
// s += x y^T of the columns [FROM, END): 16 MT rows of x by 8 N rows of y from `row`.
template <class T, int D, int FROM, int END, int MT, int N>
BARACUDA_D void add_columns(float (&s)[MT][N][4], const tile::Reader<D, false>& x, u32 x_at,
                            const tile::Reader<D, true>& y, int row, u32 y_at) {
  constexpr int UNROLL = D > 256 ? 8 : 16;  // past 256 columns more of them spill
#pragma unroll UNROLL
  for (int d = FROM; d < END; d += 16) {
    u32 a[MT][4];
#pragma unroll
    for (int m = 0; m < MT; ++m) x.read(a[m], 16 * m, d, x_at);
#pragma unroll
    for (int n = 0; n < N; n += 2) {
      u32 b[4];
      y.read(b, row + 8 * n, d, y_at);
#pragma unroll
      for (int m = 0; m < MT; ++m) {
        mma_m16n8k16<T>(s[m][n], a[m], {b[0], b[1]});
        mma_m16n8k16<T>(s[m][n + 1], a[m], {b[2], b[3]});
      }
    }
  }
}

// s = x y^T: 16 MT rows of x by 8 N rows of y from `row`, D columns. Past 256 it is the sum of two halves, as tensor
// cores truncate at every step of a long sum.
template <class T, int D, int MT, int N>
BARACUDA_D void multiply_rows(float (&s)[MT][N][4], const tile::Reader<D, false>& x, u32 x_at,
                              const tile::Reader<D, true>& y, int row, u32 y_at) {
  constexpr int FIRST = D > 256 ? D / 2 : D;
  clear(s);
  add_columns<T, D, 0, FIRST>(s, x, x_at, y, row, y_at);
  if constexpr (FIRST < D) {
    float half[MT][N][4];
    clear(half);
    add_columns<T, D, FIRST, D>(half, x, x_at, y, row, y_at);
#pragma unroll
    for (int m = 0; m < MT; ++m) {
#pragma unroll
      for (int n = 0; n < N; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) s[m][n][e] += half[m][n][e];
      }
    }
  }
}

// acc += a y: 16 rows of y from `row`, 8 N columns of it from `col`.
template <class T, int D, int MT, int N>
BARACUDA_D void add_rows(float (&acc)[MT][N][4], const u32 (&a)[MT][4], const tile::Reader<D, false>& y, int row,
                         int col, u32 at) {
#pragma unroll
  for (int n = 0; n < N; n += 2) {
    u32 b[4];
    ldmatrix_x4_trans(b, y.block(0, col + 8 * n) + 2 * row * D + at);
#pragma unroll
    for (int m = 0; m < MT; ++m) {
      mma_m16n8k16<T>(acc[m][n], a[m], {b[0], b[1]});
      mma_m16n8k16<T>(acc[m][n + 1], a[m], {b[2], b[3]});
    }
  }
}

// Turns scores of 16 keys (transposed) by 8 N queries from i0 into weights and dP into ds, both packed. (i, j): query
// and key of the thread's first score. Where pattern blocks CUT tiles, only the queries `seen` by keys g and g + 8 count.
template <class T, int TERMS, bool CUTS, int N, class Far, class Terms>
BARACUDA_D void weigh_and_make_ds(u32 (&p16)[N / 2][4], u32 (&ds16)[N / 2][4], float (&s)[N][4], float (&dp)[N][4],
                                  const Far& far, int i0, int key0, const Mask& mask, const Terms& terms, int i, int j,
                                  const u64 (&seen)[2], float c, float scale) {
  if constexpr (TERMS != 0) {
    const Direct<Terms> biases{terms, i, j};
    const u32 kept = terms.drops() ? terms.traded_by_columns(terms.template made_by_columns<N>(i, j)) : 0;
    const float ahead = static_cast<float>(i + terms.shift - j);
    weigh<T>(s, p16, kept, far, i0, key0, mask, terms, biases, ahead);
    make_ds<T>(dp, ds16, s, kept, far.stats, i0, key0, mask, terms, i, j);
  } else {
    far.lower(s, i0, scale);
    weigh(s, far.stats, i0, key0, mask, c);
    if constexpr (CUTS) keep(s, i0, seen);
    to_fragments<T>(p16, s);
    far.template spare<T>(s);
    make_ds(dp, s, far.stats, i0, key0, mask);
    if constexpr (CUTS) keep(dp, i0, seen);
    to_fragments<T>(ds16, dp);
  }
}
// acc += x y for all fragments of a slab, of queries from i0: x are transposed weights or ds, y is q or dy.
template <class T, int D, int MT, int N, int M>
BARACUDA_D void add_slab(float (&acc)[MT][N][4], const u32 (&x)[MT][M][4], const tile::Reader<D, false>& y, int i0,
                         u32 at) {
#pragma unroll
  for (int n = 0; n < M; ++n) {
    u32 a[MT][4];
#pragma unroll
    for (int m = 0; m < MT; ++m) {
#pragma unroll
      for (int e = 0; e < 4; ++e) a[m][e] = x[m][n][e];
    }
    add_rows<T>(acc, a, y, i0 + 16 * n, 0, at);
  }
}
// dq = ds k over KEYS keys: 16 MQ queries from row0, 8 N columns from col0.
template <class T, int D, int KEYS, int QUERIES, int MQ, int N>
BARACUDA_D void multiply_keys(float (&dq)[MQ][N][4], const tile::Reader<QUERIES, true>& ds,
                              const tile::Reader<D, false>& keys, int row0, int col0) {
#pragma unroll
  for (int m = 0; m < MQ; ++m) {
#pragma unroll
    for (int n = 0; n < N; ++n) dq[m][n][0] = dq[m][n][1] = dq[m][n][2] = dq[m][n][3] = 0.0f;
  }
#pragma unroll
  for (int j = 0; j < KEYS; j += 16) {
    u32 a[MQ][4];
#pragma unroll
    for (int m = 0; m < MQ; ++m) ldmatrix_x4_trans(a[m], ds.block(0, row0 + 16 * m) + 2 * j * QUERIES);
    add_rows<T>(dq, a, keys, j, col0, 0);
  }
}

}  // namespace attention

template <class T, int D, int WARPS, int MT, int SPLIT, int QUERIES, int SLAB, int STAGES, int ACROSS, class Where,
          int TERMS, class P>
BARACUDA_D void flash_gradients(const P& p) {
  using namespace attention;
  constexpr int KEY_WARPS = WARPS / SPLIT, KEYS = KEY_WARPS * MT * 16, THREADS = WARPS * warp_size, TILE = QUERIES * D;
  constexpr int COLS = D / SPLIT;                                          // columns of dk and dv of a warp
  constexpr int MQ = QUERIES / 16 / ACROSS, DQ_COLS = D * ACROSS / WARPS;  // 16-row tiles and columns of dq of a warp
  constexpr u32 SIZE = sizeof(T);
  // Under a block pattern another kernel computes dq. Where pattern blocks may end within a tile, a warp whose keys see
  // none of the tile's queries skips it.
  using Blocks = BlocksOf<Where, P>;
  constexpr bool SUMS = Blocks::sums_dq, CUTS = Blocks::may_cut;
  static_assert(QUERIES % (16 * ACROSS) == 0 && DQ_COLS % 16 == 0, "dq in whole fragments");
  constexpr int SCORING = min(SPLIT, QUERIES / SLAB),
                SHARE = QUERIES / SCORING;  // warps that make scores, queries of one
  static_assert(SHARE % SLAB == 0 && SLAB % 16 == 0, "whole slabs");
  BARACUDA_DYNAMIC_SMEM(T, keys);              // [KEYS][D], at the end dk
  T* const values = keys + KEYS * D;           // [KEYS][D], at the end dv
  T* const queries = values + KEYS * D;        // [STAGES][QUERIES][D]
  T* const grads = queries + STAGES * TILE;    // [STAGES][QUERIES][D]: dy
  T* const scores = grads + STAGES * TILE;     // [KEYS][QUERIES]: ds, transposed
  T* const weights = scores + KEYS * QUERIES;  // [KEYS][QUERIES]: p, transposed; not with SPLIT 1
  Stats* const stats = reinterpret_cast<Stats*>(scores + min(SPLIT, 2) * KEYS * QUERIES);  // [STAGES][QUERIES / 2]

  __shared__ u32 ticket;
  if (threadIdx.x == 0) ticket = atomicAdd(static_cast<u32*>(p.turns), 1u);
  __syncthreads();
  const KeyTile block = Where::template key_tile<QUERIES, KEYS>(p, ticket);
  if (Where::surplus && block.left == 0) return;
  const i64 k0 = static_cast<i64>(block.tile) * KEYS, key_row = block.of.key_row + k0;
  tile::copy<KEYS, D, THREADS>(keys, rows_of<T>(p.k, p.stride[1], block.b, block.kv, key_row), p.stride[1][2],
                               block.left, p.d_k, p.wide & 2);
  tile::copy<KEYS, D, THREADS>(values, rows_of<T>(p.v, p.stride[2], block.b, block.kv, key_row), p.stride[2][2],
                               block.left, p.d_v, p.wide & 4);
  cp_async_commit();
  const auto load = [&](const Walk& step, int stage) {
    const i64 q0 = static_cast<i64>(step.at) * QUERIES;
    const int rows = inside<QUERIES>(block.of.query_len, q0);
    const u32 h = block.kv * p.group + step.head;
    const T* const q = rows_of<T>(p.q, p.stride[0], block.b, h, block.of.query_row + q0);
    const T* const dy = rows_of<T>(p.dy, p.stride[3], block.b, h, block.of.query_row + q0);
    tile::copy<QUERIES, D, THREADS>(queries + stage * TILE, q, p.stride[0][2], rows, p.d_k, p.wide & 1);
    tile::copy<QUERIES, D, THREADS>(grads + stage * TILE, dy, p.stride[3][2], rows, p.d_v, p.wide & 8);
    const Stats* const from = static_cast<const Stats*>(p.stats) +
                              ((block.batch(p) * p.num_heads + h) * p.padded + block.of.before * QUERIES + q0) / 2;
    if (threadIdx.x < QUERIES / 2) cp_async_16(stats + stage * (QUERIES / 2) + threadIdx.x, from + threadIdx.x);
    cp_async_commit();
  };

  const int lane = lane_id(), warp = static_cast<int>(threadIdx.x) / warp_size;
  const int key0 = warp % KEY_WARPS * MT * 16, split = warp / KEY_WARPS;
  const int row0 = warp % ACROSS * MQ * 16, col0 = warp / ACROSS * DQ_COLS;  // the warp's share of dq
  const tile::Reader<D, false> mine(keys + key0 * D), key(keys), query(queries);
  const tile::Reader<D, true> query_row(queries);
  const tile::Reader<QUERIES, true> score(scores);
  constexpr u32 to_values = SIZE * KEYS * D, to_grads = SIZE * STAGES * TILE;
  const float c = static_cast<float>(p.scale * 1.4426950408889634), scale = static_cast<float>(p.scale);

  TermsOf<TERMS, float, true, P> terms(p, p.query_len, p.key_len, p.shift);
  if constexpr (TERMS != 0) terms.settle(block.of);

  float dk[MT][COLS / 8][4], dv[MT][COLS / 8][4];
#pragma unroll
  for (int m = 0; m < MT; ++m) {
#pragma unroll
    for (int n = 0; n < COLS / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) dk[m][n][e] = dv[m][n][e] = 0.0f;
    }
  }

  const bool ordered = SUMS && p.dq != nullptr && !p.any_order;
  const auto turn = [&](const Walk& step) { return turn_among<QUERIES, KEYS, Where>(p, block, step); };
  Walk now{block.last, 0}, before{-1, 0};
  Search search;
  skip_unset<QUERIES, KEYS, Where>(p, block, search, now);
  int stage = 0;
  if (STAGES == 2 && now.at >= block.first) load(now, 0);
#pragma unroll 1
  while (now.at >= block.first) {
    Walk next = now;
    next.step(p.group);
    skip_unset<QUERIES, KEYS, Where>(p, block, search, next);
    if (STAGES == 1) load(now, 0);
    cp_async_wait<0>();
    __syncthreads();  // this tile is loaded, and all have read the one before
    if (STAGES == 2 && next.at >= block.first) load(next, stage ^ 1);

    // What of the tile is masked, and whether the warp's keys see any of it
    const u32 here = stage * TILE * SIZE;
    const Mask mask = mask_at<QUERIES, KEYS>(p, block, now);
    const Stats* const stat = stats + stage * (QUERIES / 2);
    const FarRows<QUERIES, P, KeyTile> far(p, block, now, stat);
    u64 seen[MT][2];
    bool busy = true;
    if constexpr (CUTS) {
      const Blocks blocks(p, block.b, block.kv * p.group + now.head);
      u64 any = 0;
#pragma unroll
      for (int m = 0; m < MT; ++m) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int j = static_cast<int>(k0) + key0 + 16 * m + 8 * half + lane / 4;
          seen[m][half] = blocks.template queries_of<QUERIES>(j, now.at * QUERIES);
          any |= seen[m][half];
        }
      }
      busy = __any_sync(full_warp, any != 0);
    }
    if constexpr (TERMS != 0) {
      const u32 h = block.kv * p.group + now.head;
      terms.enter(block.b, h);
      Blocks(p, block.b, h).settle(terms, now.at * QUERIES, QUERIES, k0, KEYS);
    }
#pragma unroll
    for (int slab = 0; slab < SHARE; slab += SLAB) {
      if (!busy || (SCORING < SPLIT && split >= SCORING)) break;
      const int i0 = split * SHARE + slab;
      // Scores and dP
      float s[MT][SLAB / 8][4], ds[MT][SLAB / 8][4];
      multiply_rows<T>(s, mine, 0, query_row, i0, here);
      multiply_rows<T>(ds, mine, to_values, query_row, i0, here + to_grads);

      // Weights, and ds = weights (dP - delta)
      u32 p16[MT][SLAB / 16][4], ds16[MT][SLAB / 16][4];
#pragma unroll
      for (int m = 0; m < MT; ++m) {
        const int i = now.at * QUERIES + i0 + lane % 4 * 2, j = static_cast<int>(k0) + key0 + 16 * m + lane / 4;
        weigh_and_make_ds<T, TERMS, CUTS>(p16[m], ds16[m], s[m], ds[m], far, i0, key0 + 16 * m, mask, terms, i, j,
                                          seen[m], c, scale);
#pragma unroll
        for (int n = 0; n < SLAB / 16; ++n) {
          if (SUMS || SPLIT > 1) put_fragment<QUERIES>(scores, key0 + 16 * m, i0 + 16 * n, ds16[m][n]);
          if (SPLIT > 1) put_fragment<QUERIES>(weights, key0 + 16 * m, i0 + 16 * n, p16[m][n]);
        }
      }
      if (SPLIT == 1) {  // dv and dk
        add_slab<T>(dv, p16, query, i0, here + to_grads);
        add_slab<T>(dk, ds16, query, i0, here);
      }
    }

    // Pass on the last step's turn at dq, and wait for this step's
    if (ordered && threadIdx.x == 0) {
      if (before.at >= 0) pass_turn(counter_at(p, block, before), turn(before) + 1);
      await_turn(counter_at(p, block, now), turn(now));
    }
    __syncthreads();          // ds is written
    if (SPLIT > 1 && busy) {  // dv and dk
      const tile::Reader<QUERIES, false> weight(weights + key0 * QUERIES), own(scores + key0 * QUERIES);
#pragma unroll
      for (int i = 0; i < QUERIES; i += 16) {
        u32 a[MT][4];
#pragma unroll
        for (int m = 0; m < MT; ++m) weight.read(a[m], 16 * m, i);
        add_rows<T>(dv, a, query, i, split * COLS, here + to_grads);
#pragma unroll
        for (int m = 0; m < MT; ++m) own.read(a[m], 16 * m, i);
        add_rows<T>(dk, a, query, i, split * COLS, here);
      }
    }
    if (SUMS && p.dq != nullptr) {  // dq
      float dq[MQ][DQ_COLS / 8][4];
      multiply_keys<T, D, KEYS, QUERIES>(dq, score, key, row0, col0);
#pragma unroll
      for (int m = 0; m < MQ; ++m) add_to_dq<T, D, QUERIES, KEYS, Where>(p, block, now, row0 + 16 * m, col0, dq[m]);
    }
    if (STAGES == 2) stage ^= 1;
    else __syncthreads();
    before = now;
    now = next;
  }

  // Store dk and dv by way of k and v
  cp_async_wait<0>();
  __syncthreads();  // all have read k and v
  if (ordered && before.at >= 0 && threadIdx.x == 0) {
    pass_turn(counter_at(p, block, before), turn(before) + 1);
  }
#pragma unroll
  for (int m = 0; m < MT; ++m) {
#pragma unroll
    for (int n = 0; n < COLS / 8; ++n) {
      tile::put<D>(keys, key0 + 16 * m, split * COLS + 8 * n, dk[m][n], scale, scale);
      tile::put<D>(values, key0 + 16 * m, split * COLS + 8 * n, dv[m][n], terms.again, terms.again);
    }
  }
  __syncthreads();
  const auto store = [&](void* out, const i64(&stride)[3], const T* tile, int cols, bool wide) {
    if (out == nullptr) return;
    tile::copy_out<KEYS, D, THREADS>(rows_of<T>(out, stride, block.b, block.kv, key_row), stride[2], tile, threadIdx.x,
                                     block.left, cols, wide);
  };
  store(p.dk, p.stride[5], keys, p.d_k, p.wide & 32);
  store(p.dv, p.stride[6], values, p.d_v, p.wide & 64);
}

}  // namespace baracuda
