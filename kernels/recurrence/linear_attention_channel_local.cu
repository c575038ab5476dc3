// linear_attention_channel_local    what chunks of the delta rule know without the state before them, where every channel
//                                   has its decay.
//
// With A = tril(diag(beta) K, -1) of a chunk, K[i][j] = sum over d of k[i] k[j] exp(G[i] - G[j]), and R = (1 + A)^-1:
//   u = R diag(beta) v,   w = -R diag(beta) (k * exp G), so that u + w S is what the rule writes after a state S.
// R is found in float32, and enters products as a sum of two numbers of 16 bits. For the backward R and K are kept, and
// du = W^T dy, W as in linear_attention_channel_outputs.cu. Kept besides is what walks take of the chunk, scaled here once:
// k * exp(G[63] - G), exp G[63], and for the backward q * exp G with the scale.
//
// Schedule: a block of eight warps has a chunk of one head. The order of every sum is fixed by the step's place in its
// sequence.
#include "recurrence/channel_chunks.cuh"
#include "recurrence/chunk_solve.cuh"

namespace baracuda {

template <class T, int DK, class P> BARACUDA_D void linear_attention_channel_local(const P& p) {
  using namespace recurrence::chunked;
  using recurrence::row_at;
  constexpr int N = DK / 16;
  BARACUDA_DYNAMIC_SMEM(T, keys);                                 // [64][DK], then results
  T* const values = keys + chunk * DK;                            // [64][64]
  float* const system = reinterpret_cast<float*>(values + area);  // [64][64]
  float* const inverse = system + area;                           // [64][64]
  float* const logs = inverse + area;                             // [64][DK], then both parts of the inverse
  T* const scaled = reinterpret_cast<T*>(inverse);
  T* const high = reinterpret_cast<T*>(logs);       // [64][64]
  T* const low = high + area;                       // [64][64]
  T* const queries = reinterpret_cast<T*>(system);  // [64][DK], of the backward, then dy and du
  T* const outputs = queries;                       // [64][64]
  T* const made = outputs + area;                   // [64][64]
  __shared__ float of_query[chunk], of_key[chunk], betas[chunk];
  const i64 head = blockIdx.x % p.num_heads, place = blockIdx.x / p.num_heads, tiles = div_up(p.d_v, width);
  const Chunk here = chunk_of(p, place);
  if (here.steps == 0) return;
  const i64 own = place * p.num_heads + head;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / warp_size, row0 = warp % 4 * 16;
  const int col0 = warp / 4 * 32, half = warp / 4 * (DK / 2), steps = here.steps;
  const auto from = [&](const void* x, const i64(&stride)[3], i64 heads) {
    return rows_for<T>(p, x, stride, heads, here.batch, here.start, head);
  };
  tile::copy<chunk, DK, crew>(keys, from(p.k, p.stride[1], p.k_heads), p.stride[1][1], steps, p.d_k, p.wide & 2);
  if (p.du != nullptr)
    tile::copy<chunk, DK, crew>(queries, from(p.q, p.stride[0], p.q_heads), p.stride[0][1], steps, p.d_k, p.wide & 1);
  cp_async_commit();
  if (thread < chunk) betas[thread] = beta_of(p, here.batch, here.start, head, thread, steps);
  sum_channels<DK>(logs, p, here.batch, here.start, head, steps);
  cp_async_wait<0>();
  __syncthreads();
  if (thread < chunk) of_key[thread] = norm_of<DK>(p, keys, thread);
  else if (p.du != nullptr && thread < 2 * chunk)
    of_query[thread - chunk] = static_cast<float>(p.scale) * norm_of<DK>(p, queries, thread - chunk);
  if (p.du != nullptr) {
    for (int i = thread; i < area / 8; i += crew) store(values + 8 * i, Vec<T, 8>{});
    __syncthreads();
    decayed_products<DK>(scaled, queries, keys, logs, of_query, of_key, nullptr, p.d_k,
                         [&](int i, int j, float x) { values[tile::at<64>(i, j / 8) + j % 8] = from_acc<T>(x); });
    keep_queries<DK>(p, own, queries, of_query, logs, false);
#pragma unroll 1
    for (i64 n = 0; n < tiles; ++n) {
      const int left = static_cast<int>(min<i64>(width, p.d_v - n * width));
      __syncthreads();  // all have read the columns before
      tile::copy<chunk, 64, crew>(outputs, row_at<T>(p.y, p.stride[4], here.batch, here.start, head) + n * width,
                                  p.stride[4][1], steps, left, p.wide & 16);
      cp_async_commit();
      cp_async_wait<0>();
      __syncthreads();
      float du[4][4];
      clear(du);
      multiply<T, chunk>(du, moved(tile::Reader<64, true>(values), 0, row0),
                         moved(tile::Reader<64, false>(outputs), 0, col0));
      put_all<64>(made, row0, col0, du);
      __syncthreads();
      tile::copy_out<chunk, 64, crew>(static_cast<T*>(p.du) + (own * tiles + n) * area, 64, made, thread, chunk, width,
                                      true);
    }
    __syncthreads();
  }
  for (int i = thread; i < area; i += crew) system[i] = 0.0f;
  __syncthreads();
  float* const kept = p.alike == nullptr ? nullptr : static_cast<float*>(p.alike) + own * area;
  decayed_products<DK>(scaled, keys, keys, logs, of_key, of_key, nullptr, p.d_k, [&](int i, int j, float x) {
    system[i * chunk + j] = j < i ? betas[i] * x : 0.0f;
    if (kept != nullptr) kept[i * chunk + j] = x;
  });
  keep_total<DK>(p, own, logs);
  keep_keys<DK>(p, own, scaled, keys, of_key, logs);
  for (int i = thread; i < area; i += crew) inverse[i] = i / width == i % width ? 1.0f : 0.0f;
  scale_channels<DK>(keys, keys, 0, chunk, [&](int i, int d) { return of_key[i] * fade(logs[i * DK + d]); });
  __syncthreads();
  solve(inverse, system);
  if (p.inverse != nullptr) {
    for (int i = thread; i < area; i += crew) static_cast<float*>(p.inverse)[own * area + i] = inverse[i];
  }
  split_columns(high, low, inverse, [&](int j) { return betas[j]; });
  __syncthreads();
  const tile::Reader<64, false> highs(high + row0 * 64), lows(low + row0 * 64);
  {
    const tile::Reader<DK, false> some_keys = moved(tile::Reader<DK, false>(keys), 0, half);
    float w[N][4];
    clear(w);
    multiply<T, chunk>(w, highs, some_keys);
    multiply<T, chunk>(w, lows, some_keys);
    each(w, row0, half, [&](float& x, int, int) { x = -x; });
    __syncthreads();  // all have read the keys
    put_all<DK>(keys, row0, half, w);
  }
  __syncthreads();
  tile::copy_out<chunk, DK, crew>(static_cast<T*>(p.w) + own * chunk * DK, DK, keys, thread, chunk, DK, true);
#pragma unroll 1
  for (i64 n = 0; n < tiles; ++n) {
    const int left = static_cast<int>(min<i64>(width, p.d_v - n * width));
    __syncthreads();  // all have read the columns before
    tile::copy<chunk, 64, crew>(values, from(p.v, p.stride[2], p.v_heads) + n * width, p.stride[2][1], steps, left,
                                p.wide & 4);
    cp_async_commit();
    cp_async_wait<0>();
    __syncthreads();
    const tile::Reader<64, false> some_values = moved(tile::Reader<64, false>(values), 0, col0);
    float u[4][4];
    clear(u);
    multiply<T, chunk>(u, highs, some_values);
    multiply<T, chunk>(u, lows, some_values);
    put_all<64>(keys, row0, col0, u);
    __syncthreads();
    tile::copy_out<chunk, 64, crew>(static_cast<T*>(p.u) + (own * tiles + n) * area, 64, keys, thread, chunk, width,
                                    true);
  }
}

}  // namespace baracuda
