#pragma once
// flash_sdpa_backward.cuh    what the tensor-core kernels of the backward share: flash_prepare, the mask, the sums of
// dq.
#include "attention/dense/flash_sdpa_backward_walk.cuh"
#include "attention/dense/lse_rests.cuh"
#include <baracuda/index.cuh>
#include <baracuda/mma_tile.cuh>

namespace baracuda {
namespace attention {

// Of two queries: lse log2(e), or far_row(), and delta = sum of y dy, less dlse.
struct alignas(16) Stats {
  float2 lse, delta;
};
// Those of the step's tile of queries.
template <int QUERIES, class P> BARACUDA_D const Stats* stats_at(const P& p, const KeyTile& key, const Walk& step) {
  const u32 h = key.kv * p.group + step.head;
  const i64 row = (key.batch(p) * p.num_heads + h) * p.padded + (key.of.before + step.at) * QUERIES;
  return static_cast<const Stats*>(p.stats) + row / 2;
}
// Address of a row's lse; its delta stands two floats further.
BARACUDA_D float* stats_of(void* stats, i64 row) { return static_cast<float*>(stats) + row / 2 * 4 + row % 2; }
// The lse that padding rows past the last query have, which no real row has: it makes their weights 0.
BARACUDA_D float no_row() { return numeric<float>::max(); }

// Far rows (attention.cuh) are those whose scores are too large for float differences: their base here is 0, and their
// scores are lowered before they become weights. Tiles without one pay only for the test.
BARACUDA_D float far_row() { return -0.0f; }  // no other row's
BARACUDA_D bool is_far(float lse) { return __float_as_uint(lse) == 0x80000000u; }
// Where lse has a gradient, which far rows leave out for a key that has all of its row (`spare`) but in kernels with
// masks, they begin farther off: where rounding score and lse changes a weight by 2^-10.
constexpr float far_powers_of_lse = 0x1p13f;
// Score x minus the row's base, clamped to at most 0; x and the result in units of 1 / `unit`.
BARACUDA_D float lowered(float x, float base, float unit) {
  const float above = math::minimum(x * unit - base, 0.0f);
  return above == 0.0f ? 0.0f : above * math::fast_rcp(unit);
}
// The far rows of a tile of queries.
template <int QUERIES, class P, class Tile> struct FarRows {
  const P& p;
  const Tile& key;
  const Walk& step;
  const Stats* stats;  // of the tile
  bool any;

  BARACUDA_D FarRows(const P& p, const Tile& key, const Walk& step, const Stats* stats, bool any)
      : p(p), key(key), step(step), stats(stats), any(any) {}
  BARACUDA_D FarRows(const P& p, const Tile& key, const Walk& step, const Stats* stats)
      : FarRows(p, key, step, stats, found(stats)) {}
  static BARACUDA_HD constexpr bool may_have_rests() { return takes_rests<P>; }
  static BARACUDA_D bool found(const Stats* stats) {  // called by a whole warp
    bool some = false;
#pragma unroll
    for (int n = 0; n < QUERIES / 2; n += warp_size) {
      const int pair = n + lane_id();
      if (QUERIES / 2 - n < warp_size && pair >= QUERIES / 2) break;
      const float2 lse = stats[pair].lse;
      some |= is_far(lse.x) || is_far(lse.y);
    }
    return __any_sync(all_lanes, some);
  }
  // Lowers scores of a warp's 16 keys (transposed) by 8 M queries from the tile's i0.
  template <int M> BARACUDA_D void lower(float (&x)[M][4], int i0, float unit) const {
    if (!any) return;
    i0 += lane_id() % 4 * 2;
    const u32 h = key.kv * p.group + step.head;
    const i64 row = key.of.query_row + static_cast<i64>(step.at) * QUERIES + i0;
    const float* const lse =
        static_cast<const float*>(p.lse) + (static_cast<i64>(key.batch(p)) * p.num_heads + h) * p.query_len + row;
#pragma unroll
    for (int n = 0; n < M; ++n) {
      const float2 found = stats[i0 / 2 + 4 * n].lse;
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const bool far = is_far(e ? found.y : found.x);
        const float base = far ? replay_base(lse[8 * n + e]) : 0.0f;
        x[n][e] = far ? lowered(x[n][e], base, unit) : x[n][e];
        x[n][2 + e] = far ? lowered(x[n][2 + e], base, unit) : x[n][2 + e];
      }
    }
  }
  // The same where rows' sums may have been found again. product(n, e): what biases were added to.
  template <int M, class Product>
  BARACUDA_D void lower(float (&x)[M][4], int i0, float unit, const Product& product) const {
    if (!any) return;
    i0 += lane_id() % 4 * 2;
    const i64 head = static_cast<i64>(key.batch(p)) * p.num_heads + key.kv * p.group + step.head;
    const i64 row = head * p.query_len + key.of.query_row + static_cast<i64>(step.at) * QUERIES + i0;
    const float *const lse = static_cast<float*>(p.lse) + row, *const rests = static_cast<float*>(p.rests) + row;
#pragma unroll
    for (int n = 0; n < M; ++n) {
      const float2 found = stats[i0 / 2 + 4 * n].lse;
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const bool far = is_far(e ? found.y : found.x);
        const float own = far ? lse[8 * n + e] : 0.0f;
        const float rest = far && p.resummed ? rests[8 * n + e] : 0.0f;
#pragma unroll
        for (int at = e; at < 4; at += 2) {
          const float above = above_sum(x[n][at] * unit - own, rest, product(n, at));
          x[n][at] = !far ? x[n][at] : above == 0.0f ? 0.0f : above * math::fast_rcp(unit);
        }
      }
    }
  }
  // Whether `spare` is done under score terms: with dropout in all tiles, but not where lse has a gradient.
  BARACUDA_D bool spares(bool drops) const {
    if constexpr (may_have_rests()) return (drops || any) && p.spares;
    else return drops || any;
  }
  // For ds: zeroes the weight of a key that has all of its row's weight.
  template <class T, int N> BARACUDA_D void spare(float (&p)[N][4]) const {
    if (!any) return;
#pragma unroll
    for (int n = 0; n < N; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) p[n][e] = rounds_to_one<T>(p[n][e]) ? 0.0f : p[n][e];
    }
  }
  // The same on packed fragments x of ds: p are the weights (`unit` stands for 1). Of the 32 queries from 8 `from`.
  template <class T> BARACUDA_D void spare(u32 (&x)[4][4], const u32 (&p)[4][4], int from, float unit = 1.0f) const {
    if (!any) return;
    const u32 whole = pack_pair<T>(unit, unit);
#pragma unroll
    for (int n = from / 2; n < from / 2 + 2; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const u32 other = p[n][e] ^ whole;
        x[n][e] &= (other & 0xffffu ? 0xffffu : 0) | (other & 0xffff0000u ? 0xffff0000u : 0);
      }
    }
  }
};

// A thread's view of the mask at a tile of queries: query i sees the block's keys j with i + from <= j <= i + past.
struct Mask {
  bool cut;  // whether anything is masked
  int left, from, past, rows;
};
template <int QUERIES, int KEYS, class P> BARACUDA_D Mask mask_at(const P& p, const KeyTile& key, const Walk& step) {
  const i64 ahead = static_cast<i64>(step.at) * QUERIES - static_cast<i64>(key.tile) * KEYS;
  const auto clamped = [](i64 x) { return static_cast<int>(max<i64>(-KEYS - QUERIES, min<i64>(x, KEYS))); };
  const int past = clamped(ahead + key.of.shift + p.right), from = clamped(ahead + key.of.shift - p.left);
  const int rows = inside<QUERIES>(key.of.query_len, static_cast<i64>(step.at) * QUERIES);
  return {key.left < KEYS || past < KEYS - 1 || from + QUERIES > 1 || rows < QUERIES, key.left, from, past, rows};
}

// Zeroes scores of rows g and g + 8 in the columns whose bit is not set in `seen`.
template <int N> BARACUDA_D void keep(float (&s)[N][4], int i0, const u64 (&seen)[2]) {
  const int first = i0 + lane_id() % 4 * 2;
  const u64 mine[2] = {seen[0] >> first, seen[1] >> first};
#pragma unroll
  for (int n = 0; n < N; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      if (!(mine[e / 2] >> (8 * n + e % 2) & 1)) s[n][e] = 0.0f;
    }
  }
}
// Bit i of the result: query i of the tile sees key j of the block.
BARACUDA_D u64 seeing(int j, const Mask& mask) {
  const int low = max(j - mask.past, 0), count = j < mask.left ? min(j - mask.from + 1, mask.rows) - low : 0;
  return count > 0 ? ~0ull >> (64 - count) << low : 0;
}
// Zeroes masked scores of 16 keys from key0 (transposed) by 8 N queries from i0.
template <int N> BARACUDA_D void hide(float (&s)[N][4], int i0, int key0, const Mask& mask) {
  u64 seen[2];  // the tile's queries that see key g, and g + 8
#pragma unroll
  for (int half = 0; half < 2; ++half) seen[half] = seeing(key0 + lane_id() / 4 + 8 * half, mask);
  keep(s, i0, seen);
}
// The same on packed fragments of 64 queries, for the 32 from 8 `from`.
BARACUDA_D void hide(u32 (&a)[4][4], int from, int key0, const Mask& mask) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const u64 mine = seeing(key0 + lane_id() / 4 + 8 * half, mask) >> lane_id() % 4 * 2;
#pragma unroll
    for (int n = from; n < from + 4; ++n) {
      const u32 pair = static_cast<u32>(mine >> 8 * n);
      a[n / 2][n % 2 * 2 + half] &= (pair & 1 ? 0xffffu : 0) | (pair & 2 ? 0xffff0000u : 0);
    }
  }
}
// Turns scores into weights, p = 2^(s c - lse log2(e)).
template <int N>
BARACUDA_D void weigh(float (&s)[N][4], const Stats* stats, int i0, int key0, const Mask& mask, float c) {
#pragma unroll
  for (int n = 0; n < N; ++n) {
    const float2 lse = stats[i0 / 2 + 4 * n + lane_id() % 4].lse;
#pragma unroll
    for (int e = 0; e < 4; ++e) s[n][e] = exp2_fast(math::fma(s[n][e], c, e % 2 ? -lse.y : -lse.x));
  }
  if (mask.cut) hide(s, i0, key0, mask);
}
// Turns dy v into ds = p (dy v - delta).
template <int N>
BARACUDA_D void make_ds(float (&ds)[N][4], const float (&p)[N][4], const Stats* stats, int i0, int key0,
                        const Mask& mask) {
#pragma unroll
  for (int n = 0; n < N; ++n) {
    const float2 delta = stats[i0 / 2 + 4 * n + lane_id() % 4].delta;
#pragma unroll
    for (int e = 0; e < 4; ++e) ds[n][e] = p[n][e] * (ds[n][e] - (e % 2 ? delta.y : delta.x));
  }
  if (mask.cut) hide(ds, i0, key0, mask);  // by the mask, as p = 0 times an infinite dy v of a masked pair would be NaN
}
// Packs the n-th eight columns of an accumulator into A fragments.
template <class T, int N> BARACUDA_D void put_pairs(u32 (&a)[N][4], int n, const float (&s)[4]) {
  a[n / 2][n % 2 * 2] = pack_pair<T>(s[0], s[1]);
  a[n / 2][n % 2 * 2 + 1] = pack_pair<T>(s[2], s[3]);
}
// weigh and make_ds at once: scores and dy v of 64 queries to packed fragments of weights and ds, for the 32 queries
// from 8 `from`. of: Stats of the thread's first two queries; early: those and the next two, already in registers.
template <class T>
BARACUDA_D void weigh_and_make_ds(u32 (&p16)[4][4], u32 (&ds16)[4][4], const float (&s)[8][4], const float (&dp)[8][4],
                                  int from, const Stats (&early)[2], const Stats* of, float c) {
#pragma unroll
  for (int n = from; n < from + 4; ++n) {
    const Stats x = n < 2 ? early[n] : of[4 * n];
    float p[4], ds[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      p[e] = exp2_fast(math::fma(s[n][e], c, e % 2 ? -x.lse.y : -x.lse.x));
      ds[e] = p[e] * (dp[n][e] - (e % 2 ? x.delta.y : x.delta.x));
    }
    put_pairs<T>(p16, n, p);
    put_pairs<T>(ds16, n, ds);
  }
}
// Packs accumulators into the A fragments of the next product.
template <class T, int N> BARACUDA_D void to_fragments(u32 (&a)[N / 2][4], const float (&s)[N][4]) {
#pragma unroll
  for (int n = 0; n < N; ++n) put_pairs<T>(a, n, s[n]);
}

// Writes a 16 x 16 A fragment to a tile in shared memory.
template <int D, class T> BARACUDA_D void put_fragment(T* tile, int row, int col, const u32 (&a)[4]) {
  const int g = lane_id() / 4, t = lane_id() % 4;
#pragma unroll
  for (int n = 0; n < 4; ++n) {
    *reinterpret_cast<u32*>(tile + tile::at<D>(row + g + n % 2 * 8, col / 8 + n / 2) + 2 * t) = a[n];
  }
}

// Writes scale x, a warp's accumulators, to rows r0 … and columns col0 … of a sequence's dq.
template <class T, int N, class P>
BARACUDA_D void put_dq(const P& p, const Sequence& of, u32 b, u32 h, i64 r0, int col0, const float (&x)[N][4]) {
  const i64 r = r0 + lane_id() / 4;
  const int cols = p.d_k - col0 - lane_id() % 4 * 2;
  const float scale = static_cast<float>(p.scale);
  T* const dq = rows_of<T>(p.dq, p.stride[4], b, h, of.query_row + r) + p.d_k - cols;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (r + 8 * half >= of.query_len) break;
    T* const to = dq + 8 * half * p.stride[4][2];
#pragma unroll
    for (int n = 0; n < N; ++n) {
      const float low = x[n][2 * half] * scale, high = x[n][2 * half + 1] * scale;
      if (p.wide & 16) {
        if (8 * n < cols) *reinterpret_cast<u32*>(to + 8 * n) = pack_pair<T>(low, high);
      } else {
        if (8 * n < cols) to[8 * n] = from_acc<T>(low);
        if (8 * n + 1 < cols) to[8 * n + 1] = from_acc<T>(high);
      }
    }
  }
}

// Adds a warp's share of dq at a tile of queries, rows from row0 and columns from col0, to the sums, which stand in the
// order of the warp's lanes. The last tile of keys adds the sums to its own share and writes dq. With p.any_order all
// add, and flash_finish writes dq.
template <class T, int D, int QUERIES, int KEYS, class Where = Dense, int N, class P>
BARACUDA_D void add_to_dq(const P& p, const KeyTile& key, const Walk& step, int row0, int col0, float (&x)[N][4]) {
  const u32 h = key.kv * p.group + step.head;
  const i64 q0 = static_cast<i64>(step.at) * QUERIES;
  float* const sums = static_cast<float*>(p.sums) + static_cast<i64>(tile_at(p, key, step)) * (QUERIES * D) +
                      (row0 * D + col0 * 16 + lane_id() * 4);
  if (p.any_order) {
#pragma unroll
    for (int n = 0; n < N; ++n) add_quad_any_order(sums + n * 128, x[n]);
    return;
  }
  bool begins, more;
  if constexpr (is_same<Where, BlockMasked>) {
    const u32* const turns = block_turns(p, key.b, h, step.at);
    begins = turns[key.tile] == 0, more = turns[key.tile] + 1 < turns[p.key_tiles];
  } else {
    begins = key.tile == key.of.template first_tile<QUERIES, KEYS>(p, step.at);
    more = key.tile + 1 < key.of.template end_tile<QUERIES, KEYS>(p, step.at);
  }
  if (more) {
#pragma unroll
    for (int n = 0; n < N; ++n) {
      if (!begins) add_quad(sums + n * 128, x[n]);
      else __stcg(reinterpret_cast<float4*>(sums + n * 128), float4{x[n][0], x[n][1], x[n][2], x[n][3]});
    }
    return;
  }
  if (!begins) {
#pragma unroll
    for (int n = 0; n < N; ++n) {
      const float4 old = __ldcg(reinterpret_cast<const float4*>(sums + n * 128));
      x[n][0] += old.x, x[n][1] += old.y, x[n][2] += old.z, x[n][3] += old.w;
    }
  }
  put_dq<T>(p, key.of, key.b, h, q0 + row0, col0, x);
}

}  // namespace attention

// flash_prepare for a block's rows. WIDE: y and dy are always loaded 16 bytes at a time, also for rows that do not
// exist, as a branch between the loads would serialise them (docs/design/attention-backward.md).
template <class T, int D, int QUERIES, int KEYS, bool WIDE, class Where, class P>
BARACUDA_D void prepare_rows(const P& p) {
  using namespace attention;
  constexpr int LANES = D <= 32 ? 4 : D <= 64 ? 8 : D <= 128 ? 16 : 32, ROWS = 256 / LANES, EACH = 2, VEC = 8;
  const u32 chunks = static_cast<u32>(p.chunks), head = blockIdx.x / chunks;
  const u32 b = head / p.num_heads, h = head % p.num_heads;
  const i64 first = static_cast<i64>(blockIdx.x % chunks) * (ROWS * EACH) + threadIdx.x / LANES;
  const int c = static_cast<int>(threadIdx.x) % LANES * VEC;
  const T* const y = rows_of<T>(p.y, p.stride[0], b, h, 0) + c;
  const T* const dy = rows_of<T>(p.dy, p.stride[1], b, h, 0) + c;
  const bool inside = c < p.d_v;
  Vec<T, VEC> left[EACH], right[EACH];
  i64 rows[EACH];  // index of the row, -1 for none
  float lse[EACH], dlse[EACH];
  bool blind[EACH];
#pragma unroll
  for (int n = 0; n < EACH; ++n) {
    const i64 i = first + n * ROWS;
    const QueryTile t = Where::template query_tile<QUERIES>(p, i / QUERIES);
    const i64 inner = t.at * QUERIES + i % QUERIES, row = t.of.query_row + inner;
    const bool there = inner < t.of.query_len;
    rows[n] = there ? row : -1;
    blind[n] =
        there && t.of.template end_tile<QUERIES, KEYS>(p, t.at) <= t.of.template first_tile<QUERIES, KEYS>(p, t.at);
    if constexpr (is_same<Where, BlockMasked>) blind[n] = there && block_turns(p, b, h, t.at)[p.key_tiles] == 0;
    lse[n] = there && c == 0 ? static_cast<const float*>(p.lse)[head * p.query_len + row] : 0.0f;
    dlse[n] = there && c == 0 ? lse_gradient(p, lse[n], head * p.query_len + row) : 0.0f;
    if constexpr (WIDE) {
      const bool loads = there && inside;
      left[n] = load<VEC>(loads ? y + row * p.stride[0][2] : y - c);
      right[n] = load<VEC>(loads ? dy + row * p.stride[1][2] : dy - c);
    } else {
      const int cols = there ? p.d_v - c : 0;
      left[n] = load_vec<T, VEC, false>(y + row * p.stride[0][2], cols);
      right[n] = load_vec<T, VEC, false>(dy + row * p.stride[1][2], cols);
    }
  }
#pragma unroll
  for (int n = 0; n < EACH; ++n) {
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < VEC; ++k) sum = math::fma(to_acc(left[n][k]), to_acc(right[n][k]), sum);
    if (WIDE && !inside) sum = 0.0f;
    if constexpr (D > LANES * VEC) {
      for (int at = LANES * VEC; rows[n] >= 0 && c + at < p.d_v; at += LANES * VEC) {
        const auto own = load_vec<T, VEC, WIDE>(y + rows[n] * p.stride[0][2] + at, p.d_v - c - at);
        const auto of_own = load_vec<T, VEC, WIDE>(dy + rows[n] * p.stride[1][2] + at, p.d_v - c - at);
        for (int k = 0; k < VEC; ++k) sum = math::fma(to_acc(own[k]), to_acc(of_own[k]), sum);
      }
    }
#pragma unroll
    for (int lane = 1; lane < LANES; lane *= 2) sum += __shfl_xor_sync(all_lanes, sum, lane);
    const i64 i = first + n * ROWS;
    if (c == 0 && i < p.padded) {
      const float none = numeric<float>::infinity(), powers = lse[n] * log2_e<float>;
      const float most = p.dlse == nullptr ? far_powers<float> : far_powers_of_lse;
      // + 0.0f: no -0, which is far_row()
      const float found = lse[n] == -none ? none : math::abs(powers) < most ? powers + 0.0f : far_row();
      float* const stats = stats_of(p.stats, head * p.padded + i);
      stats[0] = rows[n] >= 0 ? found : no_row(), stats[2] = rows[n] >= 0 ? sum - dlse[n] : 0.0f;
    }
    if (p.dq != nullptr && blind[n]) {
      Vec<T, VEC> zeros;
#pragma unroll
      for (int k = 0; k < VEC; ++k) zeros[k] = T(0.0f);
      T* const dq = rows_of<T>(p.dq, p.stride[2], b, h, rows[n]) + c;
      for (int at = 0; at < D; at += LANES * VEC) store_vec<T, VEC, false>(dq + at, zeros, p.d_k - c - at);
    }
  }
}
// Writes stats of all rows, each head padded to whole tiles of queries: lse = inf makes the weights of a row that sees
// no key 0, no_row() those of padding. Also zeroes the counters, `fill` float4 of the sums, and dq of rows that see no
// key. 256 threads.
template <class T, int D, int QUERIES, int KEYS, class Where, class P> BARACUDA_D void flash_prepare(const P& p) {
  const i64 thread = blockIdx.x * 256ll + threadIdx.x;
  if (thread < p.counters) static_cast<u32*>(p.turns)[thread] = 0;
  for (i64 n = thread; n < p.fill; n += gridDim.x * 256ll) static_cast<float4*>(p.sums)[n] = float4{0, 0, 0, 0};
  if (p.wide == 3) prepare_rows<T, D, QUERIES, KEYS, true, Where>(p);
  else prepare_rows<T, D, QUERIES, KEYS, false, Where>(p);
}

// dq = scale times the sums, for rows that see a key. A warp takes 16 rows by 32 columns, a block has eight warps. The
// sums of a tile are stored as SIDES parts of D / SIDES columns each.
template <class T, int D, int QUERIES, int KEYS, int SIDES, class Where, class P>
BARACUDA_D void flash_finish(const P& p) {
  using namespace attention;
  constexpr int PARTS = D / 32, GROUPS = QUERIES / 16, WIDTH = D / SIDES;
  u64 part, group, tile, rest = blockIdx.x * 8ull + threadIdx.x / warp_size;
  rest = divmod(rest, u64(PARTS), part);
  rest = divmod(rest, u64(GROUPS), group);
  rest = divmod(rest, static_cast<u64>(p.tiles), tile);
  if (rest >= static_cast<u64>(p.heads)) return;
  const int col = static_cast<int>(part) * 32;
  const float* const sums = static_cast<const float*>(p.sums) + (rest * p.tiles + tile) * (QUERIES * D) +
                            col / WIDTH * (QUERIES * WIDTH) + group * (16 * WIDTH) + col % WIDTH * 16 + lane_id() * 4;
  float x[4][4];
#pragma unroll
  for (int n = 0; n < 4; ++n) {
    const float4 quad = *reinterpret_cast<const float4*>(sums + n * 128);
    x[n][0] = quad.x, x[n][1] = quad.y, x[n][2] = quad.z, x[n][3] = quad.w;
  }
  const u32 row_head = static_cast<u32>(rest), heads = static_cast<u32>(p.num_heads);
  const QueryTile t = Where::template query_tile<QUERIES>(p, static_cast<i64>(tile));
  if (t.of.template end_tile<QUERIES, KEYS>(p, t.at) <= t.of.template first_tile<QUERIES, KEYS>(p, t.at)) return;
  const i64 row = t.at * QUERIES + static_cast<i64>(group) * 16;
  if (p.wide & 16) {
    const float scale = static_cast<float>(p.scale), scales[2] = {scale, scale};
    T* const dq = rows_of<T>(p.dq, p.stride[4], row_head / heads, row_head % heads, t.of.query_row + row) + col;
    put_rows<true>({dq, dq + 8 * p.stride[4][2]}, p.stride[4][2], static_cast<int>(min<i64>(16, t.of.query_len - row)),
                   p.d_k - col, x, scales);
    return;
  }
  put_dq<T>(p, t.of, row_head / heads, row_head % heads, row, col, x);
}

}  // namespace baracuda
