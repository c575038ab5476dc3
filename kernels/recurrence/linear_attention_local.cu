// linear_attention_local    what chunks of the delta rule know without the state before them.
//
// With A = tril(diag(beta) k k^T * D, -1) of a chunk, D[i][j] = exp(G[i] - G[j]), and R = (1 + A)^-1:
//   u = R diag(beta) v,   w = -R diag(beta exp(G)) k,   so that u + w S is what the rule writes after a state S.
// R is found in float32 by substitution in blocks of 16 rows; with its factors it enters products as a sum of two numbers
// of 16 bits, so that only u and w are rounded to 16 bits. For the backward R is kept, and du = tril(q k^T * D)^T dy.
//
// Schedule: a block of eight warps has a chunk of one head. The order of every sum is fixed by the step's place in its
// sequence.
#include "recurrence/chunk_solve.cuh"

namespace baracuda {
template <class T, int DK, class P> BARACUDA_D void linear_attention_local(const P& p) {
  using namespace recurrence::chunked;
  using recurrence::row_at;
  constexpr int N = DK / 16;
  BARACUDA_DYNAMIC_SMEM(T, keys);                              // [64][DK], then results
  T* const values = keys + chunk * DK;                         // [64][64]: v, or dy
  T* const high = values + area;                               // [64][64]
  T* const low = high + area;                                  // [64][64]
  float* const system = reinterpret_cast<float*>(low + area);  // [64][64]
  float* const inverse = system + area;                        // [64][64]
  T* const queries = reinterpret_cast<T*>(inverse + area);     // [64][DK], of the backward
  __shared__ float sums[chunk], of_query[chunk], of_key[chunk], betas[chunk];
  const i64 head = blockIdx.x % p.num_heads, place = blockIdx.x / p.num_heads, tiles = div_up(p.d_v, width);
  const Chunk here = chunk_of(p, place);
  if (here.steps == 0) return;
  const i64 own = place * p.num_heads + head;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / warp_size, row0 = warp % 4 * 16;
  const int col0 = warp / 4 * 32, half = warp / 4 * (DK / 2), steps = here.steps;
  const auto from = [&](const void* x, const i64(&stride)[3], i64 heads) {
    return rows_for<T>(p, x, stride, heads, here.batch, here.start, head);
  };
  const auto copy_tile = [&](const T* rows, i64 stride, i64 tile_of, bool wide) {
    __syncthreads();  // all have read the tile before
    const int left = static_cast<int>(min<i64>(width, p.d_v - tile_of * width));
    tile::copy<chunk, 64, crew>(values, rows + tile_of * width, stride, steps, left, wide);
    cp_async_commit();
    cp_async_wait<0>();
    __syncthreads();
  };
  tile::copy<chunk, DK, crew>(keys, from(p.k, p.stride[1], p.k_heads), p.stride[1][1], steps, p.d_k, p.wide & 2);
  if (p.du != nullptr)
    tile::copy<chunk, DK, crew>(queries, from(p.q, p.stride[0], p.q_heads), p.stride[0][1], steps, p.d_k, p.wide & 1);
  cp_async_commit();
  if (warp == 0) sum_logs(sums, p, here.batch, here.start, head, steps);
  if (thread < chunk) betas[thread] = beta_of(p, here.batch, here.start, head, thread, steps);
  cp_async_wait<0>();
  __syncthreads();
  if (thread < chunk) of_key[thread] = norm_of<DK>(p, keys, thread);
  else if (p.du != nullptr && thread < 2 * chunk)
    of_query[thread - chunk] = static_cast<float>(p.scale) * norm_of<DK>(p, queries, thread - chunk);
  __syncthreads();
  const tile::Reader<DK, true> all_keys = moved(tile::Reader<DK, true>(keys), col0, 0);
  float s[4][4];
  if (p.du != nullptr) {
    clear(s);
    multiply<T, DK>(s, tile::Reader<DK, false>(queries + row0 * DK), all_keys);
    each(s, row0, col0, [&](float& x, int i, int j) {
      x = j <= i ? x * (of_query[i] * of_key[j]) * fade_of(p, sums[i] - sums[j]) : 0.0f;
    });
    put_all<64>(high, row0, col0, s);
#pragma unroll 1
    for (i64 n = 0; n < tiles; ++n) {
      copy_tile(row_at<T>(p.y, p.stride[4], here.batch, here.start, head), p.stride[4][1], n, p.wide & 16);
      clear(s);
      multiply<T, chunk>(s, moved(tile::Reader<64, true>(high), 0, row0),
                         moved(tile::Reader<64, false>(values), 0, col0));
      put_all<64>(low, row0, col0, s);
      __syncthreads();
      tile::copy_out<chunk, 64, crew>(static_cast<T*>(p.du) + (own * tiles + n) * area, 64, low, thread, chunk, width,
                                      true);
    }
  }
  clear(s);
  multiply<T, DK>(s, tile::Reader<DK, false>(keys + row0 * DK), all_keys);
  each(s, row0, col0, [&](float& x, int i, int j) {
    const float alike = x * (of_key[i] * of_key[j]);
    system[i * chunk + j] = j < i ? betas[i] * (alike * fade_of(p, sums[i] - sums[j])) : 0.0f;
    inverse[i * width + j] = i == j ? 1.0f : 0.0f;
  });
  __syncthreads();
  solve(inverse, system);
  if (p.inverse != nullptr) {
    for (int i = thread; i < area; i += crew) static_cast<float*>(p.inverse)[own * area + i] = inverse[i];
  }
  const tile::Reader<64, false> highs(high + row0 * 64), lows(low + row0 * 64);
  split_columns(high, low, inverse, [&](int j) { return -betas[j] * (of_key[j] * fade_of(p, sums[j])); });
  __syncthreads();
  {
    const tile::Reader<DK, false> some_keys = moved(tile::Reader<DK, false>(keys), 0, half);
    float w[N][4];
    clear(w);
    multiply<T, chunk>(w, highs, some_keys);
    multiply<T, chunk>(w, lows, some_keys);
    __syncthreads();  // all have read the keys
    put_all<DK>(keys, row0, half, w);
  }
  split_columns(high, low, inverse, [&](int j) { return betas[j]; });
  __syncthreads();
  tile::copy_out<chunk, DK, crew>(static_cast<T*>(p.w) + own * chunk * DK, DK, keys, thread, chunk, DK, true);
#pragma unroll 1
  for (i64 n = 0; n < tiles; ++n) {
    copy_tile(from(p.v, p.stride[2], p.v_heads), p.stride[2][1], n, p.wide & 4);
    const tile::Reader<64, false> some_values = moved(tile::Reader<64, false>(values), 0, col0);
    clear(s);
    multiply<T, chunk>(s, highs, some_values);
    multiply<T, chunk>(s, lows, some_values);
    put_all<64>(keys, row0, col0, s);
    __syncthreads();
    tile::copy_out<chunk, 64, crew>(static_cast<T*>(p.u) + (own * tiles + n) * area, 64, keys, thread, chunk, width,
                                    true);
  }
}

}  // namespace baracuda
