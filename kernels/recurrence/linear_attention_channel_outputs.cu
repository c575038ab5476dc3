// linear_attention_channel_outputs    y of every chunk of 64 steps from the state before it, where every channel has its
//                                     decay; with a bonus, q reads the state before its step and diag(bonus) k v^T.
//
// y = scale ((q * exp Q) S + W u), W[i][j] = sum over d of q[i] k[j] exp(Q[i] - G[j]) for j <= i, where Q is G, with a bonus
// G of the step before and W[i][i] = sum of q[i] bonus k[i]; u is v, of the delta rule what the states' kernel left. What
// underflows is 0. The rank-one rule (RULE 2) adds W' r, W' of q and b, and r what steps read of their states.
//
// Schedule: a block of eight warps has a chunk of one head, and goes through its columns 64 at a time. The order of every
// sum is fixed by the step's place in its sequence.
#include "recurrence/rank_chunks.cuh"

namespace baracuda {

template <class T, int DK, int RULE, class P> BARACUDA_D void linear_attention_channel_outputs(const P& p) {
  using namespace recurrence::chunked;
  using recurrence::row_at;
  constexpr bool DELTA = RULE == 1, RANK = RULE == 2;
  BARACUDA_DYNAMIC_SMEM(T, queries);                                // [64][DK]
  T* const scaled = queries + chunk * DK;                           // [64][DK]: with their decays
  T* const scores = scaled + chunk * DK;                            // [64][64]
  T* const keys = scores + area;                                    // [64][DK], then the state [DK][64]
  float* const logs = reinterpret_cast<float*>(keys + chunk * DK);  // [64][DK], then values or y [64][64]
  T* const memory = keys;
  T* const values = reinterpret_cast<T*>(logs);
  T* const reads = values + area;                               // [64][64], of the rank-one rule
  T* const of_reads = reinterpret_cast<T*>(logs + chunk * DK);  // [64][64]: W'
  __shared__ float of_query[chunk], of_key[chunk];
  const i64 head = blockIdx.x % p.num_heads, place = blockIdx.x / p.num_heads, tiles = div_up(p.d_v, width);
  const int thread = static_cast<int>(threadIdx.x), warp = thread / warp_size, row0 = warp % 4 * 16;
  const int col0 = warp / 4 * 32;
  const auto nothing = [&](i64 batch, i64 first, i64 end) {  // rows of no sequence
    for (i64 row = first; row < end; ++row) {
      for (i64 c = thread; c < p.d_v; c += crew) row_at<T>(p.y, p.stride[4], batch, row, head)[c] = from_acc<T>(0.0f);
    }
  };
  if (p.num_states == 0) {
    for (i64 batch = 0; batch < p.batch_size; ++batch) nothing(batch, 0, p.seq_len);
    return;
  }
  if (p.bounds != nullptr && place == 0) {
    nothing(0, 0, bound_of(p, 0));
    nothing(0, bound_of(p, p.num_states), p.seq_len);
  }
  const Chunk here = chunk_of(p, place);
  if (here.steps == 0) return;
  const i64 own = place * p.num_heads + head;
  const int steps = here.steps;
  tile::copy<chunk, DK, crew>(queries, rows_for<T>(p, p.q, p.stride[0], p.q_heads, here.batch, here.start, head),
                              p.stride[0][1], steps, p.d_k, p.wide & 1);
  tile::copy<chunk, DK, crew>(keys, rows_for<T>(p, p.k, p.stride[1], p.k_heads, here.batch, here.start, head),
                              p.stride[1][1], steps, p.d_k, p.wide & 2);
  cp_async_commit();
  sum_channels<DK>(logs, p, here.batch, here.start, head, steps);
  cp_async_wait<0>();
  __syncthreads();
  if (thread < chunk) of_query[thread] = static_cast<float>(p.scale) * norm_of<DK>(p, queries, thread);
  else if (thread < 2 * chunk) of_key[thread - chunk] = norm_of<DK>(p, keys, thread - chunk);
  for (int i = thread; i < area / 8; i += crew) {
    store(scores + 8 * i, Vec<T, 8>{});
    if constexpr (RANK) store(of_reads + 8 * i, Vec<T, 8>{});
  }
  __syncthreads();
  const bool before = p.bonus != nullptr;
  const float* const bonus = before ? static_cast<const float*>(p.bonus) + head * p.bonus_stride : nullptr;
  const auto query_log = [&](int i, int d) {
    return !before ? logs[i * DK + d] : i > 0 ? logs[(i - 1) * DK + d] : 0.0f;
  };
  const auto put = [&](int i, int j, float x) { scores[tile::at<64>(i, j / 8) + j % 8] = from_acc<T>(x); };
  decayed_products<DK>(scaled, queries, keys, logs, of_query, of_key, bonus, p.d_k, put);
  if constexpr (RANK) {
    tile::copy<chunk, DK, crew>(keys, rows_for<T>(p, p.b, p.stride[6], p.num_heads, here.batch, here.start, head),
                                p.stride[6][1], steps, p.d_k, p.wide & 64);
    cp_async_commit();
    if (thread < chunk) of_key[thread] = 1.0f;
    cp_async_wait<0>();
    __syncthreads();
    decayed_products<DK>(scaled, queries, keys, logs, of_query, of_key, bonus, p.d_k,
                         [&](int i, int j, float x) { of_reads[tile::at<64>(i, j / 8) + j % 8] = from_acc<T>(x); });
  }
  scale_channels<DK>(scaled, queries, 0, chunk, [&](int i, int d) { return of_query[i] * fade(query_log(i, d)); });
#pragma unroll 1
  for (i64 n = 0; n < tiles; ++n) {
    const i64 at = own * tiles + n, column = n * width;
    const int left = static_cast<int>(min<i64>(width, p.d_v - column));
    __syncthreads();  // all have read keys and logs, or the columns before
    if constexpr (DELTA) {
      tile::copy<chunk, 64, crew>(values, static_cast<const T*>(p.u) + at * area, 64, chunk, width, true);
    } else {
      const T* const v = rows_for<T>(p, p.v, p.stride[2], p.v_heads, here.batch, here.start, head);
      tile::copy<chunk, 64, crew>(values, v + column, p.stride[2][1], steps, left, p.wide & 4);
    }
    if constexpr (RANK)
      tile::copy<chunk, 64, crew>(reads, reads_at<T>(p, p.u, here.batch, here.start, head, n), read_stride(p), steps,
                                  width, true);
    tile::copy<DK, 64, crew>(memory, static_cast<const T*>(p.memory) + at * (DK * 64), 64, DK, width, true);
    cp_async_commit();
    cp_async_wait<0>();
    __syncthreads();
    float y[4][4];
    clear(y);
    multiply<T, DK>(y, tile::Reader<DK, false>(scaled + row0 * DK), moved(tile::Reader<64, false>(memory), 0, col0));
    multiply<T, chunk>(y, tile::Reader<64, false>(scores + row0 * 64), moved(tile::Reader<64, false>(values), 0, col0));
    if constexpr (RANK)
      multiply<T, chunk>(y, tile::Reader<64, false>(of_reads + row0 * 64),
                         moved(tile::Reader<64, false>(reads), 0, col0));
    __syncthreads();  // all have read the values
    put_all<64>(values, row0, col0, y);
    __syncthreads();
    tile::copy_out<chunk, 64, crew>(row_at<T>(p.y, p.stride[4], here.batch, here.start, head) + column, p.stride[4][1],
                                    values, thread, steps, left, p.wide & 16);
  }
}

}  // namespace baracuda
