// mla_decode_mma   mla_decode and mla_sparse on mma.sync: a block of eight warps takes a split of keys and 32 rows.
//
// A tile of 32 keys is loaded once, as keys and as values. Warp w computes the scores of 16 rows w / 4 with eight keys
// w % 4, over the columns in two halves, as tensor cores truncate at every step of a long sum. Eight threads of a row
// then make its weights by online softmax; and warp w adds the products of 16 rows with a quarter of the latent's
// columns. Order of sums: fixed by the positions that a row sees. Rounding: weights are rounded to T.
#include "attention/mla/latent_tiles.cuh"

namespace baracuda {

template <class T, int D, class K, class P> BARACUDA_D void mla_decode_mma(const P& p) {
  using namespace mla;
  constexpr int ROWS = mma_rows, KEYS = mma_keys, THREADS = 256, WIDTH = D + rope_columns, COLUMNS = D / 4,
                PITCH = KEYS + 4;
  BARACUDA_DYNAMIC_SMEM(T, queries);                                      // panels
  T* const tile = queries + ROWS * WIDTH;                                 // panels
  T* const weights = tile + KEYS * WIDTH;                                 // [ROWS][KEYS]
  float* const scores = reinterpret_cast<float*>(weights + ROWS * KEYS);  // [ROWS][PITCH]
  float* const factors = scores + ROWS * PITCH;                           // [ROWS]
  __shared__ u8 there[KEYS];
  const Share<K, P> share(p, ROWS);
  if (share.begin >= share.end) return;

  const int thread = static_cast<int>(threadIdx.x), warp = thread / warp_size, lane = lane_id();
  const int row0 = warp / 4 * 16, low = row0 + lane / 4, quarter = warp % 4;
  copy_queries<ROWS, D, THREADS>(p, share, queries, queries + ROWS * D);
  CellCopies<KEYS, D, THREADS, T, K, P> cells(p, share, thread);

  // Scores: the lane's rows `low` and `low` + 8, keys 8 quarter + 2 (lane % 4) and the next.
  const tile::Reader<64, false> query(queries + row0 * 64);
  const tile::Reader<64, true> key(tile + quarter / 2 * 16 * 64);
  const auto multiply_keys = [&](i64 k0) {
    float s[2][4] = {};
#pragma unroll
    for (int d = 0; d < WIDTH; d += 16) {
      u32 x[4], y[4];
      query.read(x, 0, d % 64, d / 64 * (ROWS * 128));
      key.read(y, 0, d % 64, d / 64 * (KEYS * 128));
      const bool odd = quarter % 2;
      mma_m16n8k16<T>(s[d >= WIDTH / 2], x, {odd ? y[2] : y[0], odd ? y[3] : y[1]});
    }
    const float sign = static_cast<float>(p.sign);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int row = low + e / 2 * 8, at = 8 * quarter + lane % 4 * 2 + e % 2;
      const bool sees = k0 + at < share.seen(p, row) && there[at];
      scores[row * PITCH + at] = sees ? (s[0][e] + s[1][e]) * sign : -numeric<float>::infinity();
    }
  };

  // Online softmax: a thread has four keys of a row.
  const float c = static_cast<float>(p.scale * 1.4426950408889634);
  float row_max = -numeric<float>::infinity(), row_sum = 0.0f;
  const auto softmax = [&] {
    const int row = thread / 8, first = thread % 8 * 4;
    auto x = load<4>(scores + row * PITCH + first);
    const float top = math::maximum(math::maximum(x[0], x[1]), math::maximum(x[2], x[3]));
    const float now = math::maximum(row_max, group_reduce<Max, 8>(top)), base = decoding::base_of(now);
    const float factor = decoding::exp2_fast((row_max - base) * c);
#pragma unroll
    for (int n = 0; n < 4; ++n) x[n] = decoding::exp2_fast((x[n] - base) * c);
    row_max = now;
    row_sum = math::fma(row_sum, factor, group_reduce<Sum, 8>((x[0] + x[1]) + (x[2] + x[3])));
    const uint2 pairs{pack_pair<T>(x[0], x[1]), pack_pair<T>(x[2], x[3])};
    *reinterpret_cast<uint2*>(weights + tile::at<KEYS>(row, first / 8) + first % 8) = pairs;
    if (thread % 8 == 0) factors[row] = factor;
  };

  // Outputs: rows `low` and `low` + 8, columns COLUMNS quarter + 8 n + 2 (lane % 4) and the next.
  float acc[1][COLUMNS / 8][4] = {};
  T* const values = tile + quarter * COLUMNS / 64 * (KEYS * 64);
  const int column0 = quarter * COLUMNS % 64;
  const tile::Reader<KEYS, false> weight(weights + row0 * KEYS);
  const tile::Reader<64, false> value(values);
  const auto multiply_values = [&](i64 k0) {
    u32 held[1][KEYS / 16][4];
#pragma unroll
    for (int j = 0; j < KEYS; j += 16) weight.read(held[0][j / 16], 0, j);
    const float factor[2] = {factors[low], factors[low + 8]};
#pragma unroll
    for (int n = 0; n < COLUMNS / 2; ++n) acc[0][n / 4][n % 4] *= factor[n % 4 / 2];
    // 0 times infinity is NaN, but a value that a row does not see adds nothing.
    if (hides(p, share, k0 + KEYS) && attention::has_nonfinite<KEYS * D / 2, THREADS>(tile)) {
      attention::add_nonfinite_values<COLUMNS, 1, KEYS, false>(
          acc, held,
          [&](int j, int n, int e) { return values[tile::Panels<KEYS>::at(j, column0 / 8 + n) + lane % 4 * 2 + e]; },
          KEYS, [&](int row, int at) { return k0 + at < share.seen(p, row0 + row) && there[at]; });
      __syncthreads();
      attention::clear_nonfinite<KEYS * D / 2, THREADS>(tile);
      __syncthreads();
    }
#pragma unroll
    for (int j = 0; j < KEYS; j += 16) {
#pragma unroll
      for (int n = 0; n < COLUMNS / 8; n += 2) {
        u32 y[4];
        value.read_transposed(y, j, (column0 + 8 * n) % 64, (column0 + 8 * n) / 64 * (KEYS * 128));
        mma_m16n8k16<T>(acc[0][n], held[0][j / 16], {y[0], y[1]});
        mma_m16n8k16<T>(acc[0][n + 1], held[0][j / 16], {y[2], y[3]});
      }
    }
  };

#pragma unroll 1
  for (i64 k0 = share.begin; k0 < share.end; k0 += KEYS) {
    __syncthreads();  // all have read the tile and the weights before
    cells.copy(tile, there);
    cp_async_wait<0>();
    __syncthreads();
    multiply_keys(k0);
    __syncthreads();
    softmax();
    __syncthreads();
    multiply_values(k0);
  }
  put_parts(p, share, acc[0], low, quarter * COLUMNS);
  if (thread % 8 == 0 && thread / 8 < share.count) {
    static_cast<float2*>(p.stats)[share.part(p, thread / 8)] = float2{row_max, row_sum};
  }
}

}  // namespace baracuda
