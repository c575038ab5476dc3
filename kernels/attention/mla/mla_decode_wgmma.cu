// mla_decode_wgmma   mla_decode on wgmma: a block of two warpgroups takes a split of keys and 64 rows.
//
// A tile of 64 keys is loaded once, as keys and as values, into one of two stages. The first warpgroup computes the
// scores, over the columns in two halves, as tensor cores truncate at every step of a long sum, and makes weights of
// them by online softmax; meanwhile the second one starts the copies of the next tile. Then each of them adds the
// products of all rows with half of the latent's columns. Order of sums: fixed by the positions that a row sees.
// Rounding: weights are rounded to T.
#include "attention/mla/latent_tiles.cuh"
#include <baracuda/wgmma.cuh>

namespace baracuda {
namespace mla {

// The walk of a block over its keys, in phases. What has arrays is a reference, as the compiler tells a struct's
// members apart late where arrays are among them.
template <class T, int D, class P> struct LatentWalk {
  static constexpr int ROWS = 64, KEYS = 64, THREADS = 256, WIDTH = D + rope_columns, TILE = KEYS * WIDTH;
  static constexpr int HALF = D / 2, COLUMNS = HALF % 128 == 0 ? 128 : 64;  // of a warpgroup, and of an instruction
  using Outputs = float[1][HALF / 8][4];

  const P& p;
  const Share<P>& share;
  T *const queries, *const tiles, *const weights;  // panels: queries, two stages of tiles, [ROWS][KEYS]
  float* const factors;                            // [ROWS]
  u8 (&there)[2][KEYS];
  Outputs& acc;
  float (&row_max)[2], (&row_sum)[2];
  const int group, row0, low;  // the warpgroup, the warp's first row, and the lane's; its other one is low + 8
  const i64 (&limit)[2];       // keys that those see
  const float c;

  // Scores of the first warpgroup: keys 8 n + 2 (lane % 4) and the next of the lane's rows.
  BARACUDA_D void multiply_keys(float (&s)[KEYS / 8][4], int stage, i64 k0) const {
    float rest[KEYS / 8][4];
    const u64 query = wgmma_operand(queries), key = wgmma_operand(tiles + stage * TILE);
    wgmma_fence();
#pragma unroll
    for (int d = 0; d < WIDTH; d += 16) {
      const int within = d % 64 / 16 * (32 >> 4);
      const u64 x = query + d / 64 * (ROWS * 8) + within, y = key + d / 64 * (KEYS * 8) + within;
      if (d < WIDTH / 2) wgmma<T, false, false>(s, x, y, d != 0);
      else wgmma<T, false, false>(rest, x, y, d != WIDTH / 2);
    }
    wgmma_commit();
    wgmma_wait<0>();
    hold(s);
    hold(rest);
    const float sign = static_cast<float>(p.sign);
    const int left[2] = {keys_left(limit[0], k0), keys_left(limit[1], k0)};
    const int own = lane_id() % 4 * 2;
#pragma unroll
    for (int n = 0; n < KEYS / 8; ++n) {
      const uchar2 pair = *reinterpret_cast<const uchar2*>(&there[stage][8 * n + own]);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const bool sees = 8 * n + own + e % 2 < left[e / 2] && (e % 2 ? pair.y : pair.x);
        s[n][e] = sees ? (s[n][e] + rest[n][e]) * sign : -numeric<float>::infinity();
      }
    }
  }

  // Online softmax: weights and factors of the lane's rows to shared memory.
  BARACUDA_D void weigh(float (&s)[KEYS / 8][4]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float top = row_max[half];
#pragma unroll
      for (int n = 0; n < KEYS / 4; ++n) top = math::maximum(top, s[n / 2][2 * half + n % 2]);
      const float now = group_reduce<Max, 4>(top), base = decoding::base_of(now);
      const float factor = decoding::exp2_fast((row_max[half] - base) * c);
      float sum = 0.0f;
#pragma unroll
      for (int n = 0; n < KEYS / 4; ++n) {
        float& x = s[n / 2][2 * half + n % 2];
        x = decoding::exp2_fast((x - base) * c);
        sum += x;
      }
      row_max[half] = now;
      row_sum[half] = math::fma(row_sum[half], factor, group_reduce<Sum, 4>(sum));
      if (lane_id() % 4 == 0) factors[low + 8 * half] = factor;
    }
#pragma unroll
    for (int n = 0; n < KEYS / 8; ++n) tile::put<KEYS>(weights, row0, 8 * n, s[n], 1.0f, 1.0f);
  }

  // Outputs of a warpgroup: columns HALF group + 8 n + 2 (lane % 4) and the next.
  BARACUDA_D void multiply_values(int stage, i64 k0) const {
    T* const values = tiles + stage * TILE + group * (KEYS * HALF);
    u32 held[1][KEYS / 16][4];
    const tile::Reader<KEYS, false> weight(weights + row0 * KEYS);
#pragma unroll
    for (int j = 0; j < KEYS; j += 16) weight.read(held[0][j / 16], 0, j);
    const float factor[2] = {factors[low], factors[low + 8]};
#pragma unroll
    for (int n = 0; n < HALF / 2; ++n) acc[0][n / 4][n % 4] *= factor[n % 4 / 2];
    fix_nonfinite(held, values, stage, k0);
    const u64 value = wgmma_operand(values, KEYS * 128);
    hold(held[0]);
    hold(acc[0]);
    wgmma_fence();
#pragma unroll
    for (int j = 0; j < KEYS; j += 16) {
#pragma unroll
      for (int d = 0; d < HALF; d += COLUMNS) {
        wgmma<T, true>(reinterpret_cast<float(&)[COLUMNS / 8][4]>(acc[0][d / 8]), held[0][j / 16],
                       value + d / 64 * (KEYS * 8) + j / 16 * (2048 >> 4), 1);
      }
    }
    wgmma_commit();
    wgmma_wait<0>();
    hold(acc[0]);
  }

 private:
  static BARACUDA_D int keys_left(i64 limit, i64 k0) { return static_cast<int>(min<i64>(limit - k0, KEYS)); }
  // 0 times infinity is NaN, but a value that a row does not see adds nothing.
  BARACUDA_D void fix_nonfinite(const u32 (&held)[1][KEYS / 16][4], const T* values, int stage, i64 k0) const {
    T* const tile = tiles + stage * TILE;
    if (!hides(p, share, k0 + KEYS) || !attention::has_nonfinite<KEYS * D / 2, THREADS>(tile)) return;
    attention::add_nonfinite_values<HALF, 1, KEYS, false>(
        acc, held, [&](int j, int n, int e) { return values[tile::Panels<KEYS>::at(j, n) + lane_id() % 4 * 2 + e]; },
        KEYS, [&](int row, int key) { return k0 + key < share.seen(p, row0 + row) && there[stage][key]; });
    __syncthreads();
    attention::clear_nonfinite<KEYS * D / 2, THREADS>(tile);
    wgmma_publish();
    __syncthreads();
  }
};

}  // namespace mla

template <class T, int D, class P> BARACUDA_D void mla_decode_wgmma(const P& p) {
  using namespace mla;
  using Walk = LatentWalk<T, D, P>;
  constexpr int ROWS = Walk::ROWS, KEYS = Walk::KEYS, TILE = Walk::TILE;
  BARACUDA_DYNAMIC_SMEM(T, shared);
  T* const queries = shared + (1024 - smem_address(shared) % 1024) % 1024 / sizeof(T);
  T* const tiles = queries + ROWS * Walk::WIDTH;
  T* const weights = tiles + 2 * TILE;
  __shared__ __align__(2) u8 there[2][KEYS];
  const Share<P> share(p, ROWS);
  if (share.begin >= share.end) return;

  const int group = warpgroup(), row0 = static_cast<int>(threadIdx.x) / warp_size % 4 * 16, low = row0 + lane_id() / 4;
  const i64 limit[2] = {share.seen(p, low), share.seen(p, low + 8)};
  typename Walk::Outputs acc = {};
  float row_max[2] = {-numeric<float>::infinity(), -numeric<float>::infinity()}, row_sum[2] = {};
  const Walk walk{
      p,       share, queries, tiles, weights, reinterpret_cast<float*>(weights + ROWS * KEYS), there, acc, row_max,
      row_sum, group, row0,    low,   limit,   static_cast<float>(p.scale * 1.4426950408889634)};
  CellCopies<KEYS, D, 128, T, P> cells(p, share, static_cast<int>(threadIdx.x) % 128);
  copy_queries<ROWS, D, Walk::THREADS>(p, share, queries);
  cp_async_commit();
  if (group == 1) cells.copy(tiles, there[0]);

  int stage = 0;
#pragma unroll 1
  for (i64 k0 = share.begin; k0 < share.end; k0 += KEYS, stage ^= 1) {
    cp_async_wait<0>();
    wgmma_publish();
    __syncthreads();  // the tile has come, and all have read the one before and its weights
    if (group == 1) {
      if (k0 + KEYS < share.end) cells.copy(tiles + (stage ^ 1) * TILE, there[stage ^ 1]);
    } else {
      float s[KEYS / 8][4];
      walk.multiply_keys(s, stage, k0);
      walk.weigh(s);
    }
    __syncthreads();  // the weights are there
    walk.multiply_values(stage, k0);
  }
  put_parts(p, share, acc[0], low, group * Walk::HALF);
  if (group != 0 || lane_id() % 4 != 0) return;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = low + 8 * half;
    if (row < share.count) static_cast<float2*>(p.stats)[share.part(p, row)] = float2{row_max[half], row_sum[half]};
  }
}

}  // namespace baracuda
