// linear_attention_rank_local    what chunks of the rank-one rule, S = (diag(exp g) + b a^T) S + k v^T, know without the
//                                state before them.
//
// With G' the sums of logs of the step before, B[i][j] = sum over d of a[i] b[j] exp(G'[i] - G[j]) for j < i, and K alike of
// a and k: what steps read of their states is (1 - B)^-1 ((a * exp G') S + K v) = w S + u, where R = (1 - B)^-1,
//   u = R K v,   w = R (a * exp G').
// For the gradients du = W'^T dy with W' of linear_attention_channel_outputs.cu, in u's layout, and q exp G with the scale.
// R is found in float32, and enters products as a sum of two numbers of 16 bits. Kept besides are k and b times
// exp(G[63] - G), exp G[63], and for the gradients R.
//
// Schedule: a block of eight warps has a chunk of one head. The order of every sum is fixed by the step's place in its
// sequence.
#include "recurrence/chunk_solve.cuh"
#include "recurrence/rank_chunks.cuh"

namespace baracuda {

template <class T, int DK, class P> BARACUDA_D void linear_attention_rank_local(const P& p) {
  using namespace recurrence::chunked;
  using recurrence::row_at;
  constexpr int N = DK / 16;
  BARACUDA_DYNAMIC_SMEM(T, readers);                                    // [64][DK]: a, then w and u
  T* const others = readers + chunk * DK;                               // [64][DK]: k, then b, then v
  float* const system = reinterpret_cast<float*>(others + chunk * DK);  // [64][64]
  float* const inverse = system + area;                                 // [64][64]
  float* const logs = inverse + area;                                   // [64][DK], then both parts of the inverse
  T* const scaled = reinterpret_cast<T*>(inverse);                      // [64][DK]
  T* const known = reinterpret_cast<T*>(system);                        // [64][64]: K
  T* const mixed = known + area;                                        // [64][64]: R K
  T* const high = reinterpret_cast<T*>(logs);                           // [64][64]
  T* const low = high + area;                                           // [64][64]
  __shared__ float of_key[chunk], ones[chunk];
  const i64 head = blockIdx.x % p.num_heads, place = blockIdx.x / p.num_heads, tiles = div_up(p.d_v, width);
  const Chunk here = chunk_of(p, place);
  if (here.steps == 0) return;
  const i64 own = place * p.num_heads + head;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / warp_size, row0 = warp % 4 * 16;
  const int col0 = warp / 4 * 32, half = warp / 4 * (DK / 2), steps = here.steps;
  const auto from = [&](const void* x, const i64(&stride)[3], i64 heads) {
    return rows_for<T>(p, x, stride, heads, here.batch, here.start, head);
  };
  const auto read = [&](i64 tile) { return reads_at<T>(p, p.u, here.batch, here.start, head, tile); };
  const float* const end_logs = logs + (chunk - 1) * DK;
  const auto keep = [&](void* to, const float* factors) {  // what the state takes of the chunk
    __syncthreads();                                       // all have read the rows
    keep_rows<DK>(to, own, others, others,
                  [&](int i, int d) { return factors[i] * fade(end_logs[d] - logs[i * DK + d]); });
  };
  sum_channels<DK>(logs, p, here.batch, here.start, head, steps);
  if (thread < chunk) ones[thread] = 1.0f;
  if (p.du != nullptr) {
    tile::copy<chunk, DK, crew>(readers, from(p.q, p.stride[0], p.q_heads), p.stride[0][1], steps, p.d_k, p.wide & 1);
    tile::copy<chunk, DK, crew>(others, from(p.b, p.stride[6], p.num_heads), p.stride[6][1], steps, p.d_k, p.wide & 64);
    cp_async_commit();
    for (int i = thread; i < area / 8; i += crew) store(known + 8 * i, Vec<T, 8>{});
    cp_async_wait<0>();
    __syncthreads();
    if (thread < chunk) of_key[thread] = static_cast<float>(p.scale) * norm_of<DK>(p, readers, thread);
    __syncthreads();
    decayed_products<DK>(scaled, readers, others, logs, of_key, ones, nullptr, p.d_k,
                         [&](int i, int j, float x) { known[tile::at<64>(i, j / 8) + j % 8] = from_acc<T>(x); });
    keep_queries<DK>(p, own, readers, of_key, logs, false);
#pragma unroll 1
    for (i64 n = 0; n < tiles; ++n) {
      const int left = static_cast<int>(min<i64>(width, p.d_v - n * width));
      tile::copy<chunk, 64, crew>(mixed, row_at<T>(p.y, p.stride[4], here.batch, here.start, head) + n * width,
                                  p.stride[4][1], steps, left, p.wide & 16);
      cp_async_commit();
      cp_async_wait<0>();
      __syncthreads();
      float du[4][4];
      clear(du);
      multiply<T, chunk>(du, moved(tile::Reader<64, true>(known), 0, row0),
                         moved(tile::Reader<64, false>(mixed), 0, col0));
      put_all<64>(others, row0, col0, du);
      __syncthreads();
      tile::copy_out<chunk, 64, crew>(reads_at<T>(p, p.du, here.batch, here.start, head, n), read_stride(p), others,
                                      thread, steps, width, true);
    }
    __syncthreads();  // all have read the rows
  }
  tile::copy<chunk, DK, crew>(readers, from(p.a, p.stride[5], p.num_heads), p.stride[5][1], steps, p.d_k, p.wide & 32);
  tile::copy<chunk, DK, crew>(others, from(p.k, p.stride[1], p.k_heads), p.stride[1][1], steps, p.d_k, p.wide & 2);
  cp_async_commit();
  for (int i = thread; i < area / 8; i += crew) store(known + 8 * i, Vec<T, 8>{});
  cp_async_wait<0>();
  __syncthreads();
  if (thread < chunk) of_key[thread] = norm_of<DK>(p, others, thread);
  keep_total<DK>(p, own, logs);
  __syncthreads();
  // The diagonal, for which the logs stand, is not used.
  decayed_products<DK>(scaled, readers, others, logs, ones, of_key, logs, p.d_k, [&](int i, int j, float x) {
    if (j < i) known[tile::at<64>(i, j / 8) + j % 8] = from_acc<T>(x);
  });
  tile::copy_out<chunk, 64, crew>(read(0), read_stride(p), known, thread, steps, width, true);
  keep(p.kept_keys, of_key);
  tile::copy<chunk, DK, crew>(others, from(p.b, p.stride[6], p.num_heads), p.stride[6][1], steps, p.d_k, p.wide & 64);
  cp_async_commit();
  for (int i = thread; i < area; i += crew) system[i] = 0.0f;
  cp_async_wait<0>();
  __syncthreads();
  decayed_products<DK>(scaled, readers, others, logs, ones, ones, logs, p.d_k, [&](int i, int j, float x) {
    if (j < i) system[i * chunk + j] = -x;
  });
  scale_channels<DK>(readers, readers, 0, chunk,
                     [&](int i, int d) { return i > 0 ? fade(logs[(i - 1) * DK + d]) : 1.0f; });
  keep(p.kept_writers, ones);
  for (int i = thread; i < area; i += crew) inverse[i] = i / width == i % width ? 1.0f : 0.0f;
  __syncthreads();
  solve(inverse, system);
  tile::copy<chunk, 64, crew>(known, read(0), read_stride(p), steps, width, true);
  cp_async_commit();
  if (p.inverse != nullptr) {
    for (int i = thread; i < area; i += crew) static_cast<float*>(p.inverse)[own * area + i] = inverse[i];
  }
  split_columns(high, low, inverse, [](int) { return 1.0f; });
  cp_async_wait<0>();
  __syncthreads();
  const tile::Reader<64, false> highs(high + row0 * 64), lows(low + row0 * 64);
  {
    const tile::Reader<DK, false> some_readers = moved(tile::Reader<DK, false>(readers), 0, half);
    float w[N][4], x[4][4];
    clear(w), clear(x);
    multiply<T, chunk>(w, highs, some_readers);
    multiply<T, chunk>(w, lows, some_readers);
    multiply<T, chunk>(x, highs, moved(tile::Reader<64, false>(known), 0, col0));
    multiply<T, chunk>(x, lows, moved(tile::Reader<64, false>(known), 0, col0));
    put_all<64>(mixed, row0, col0, x);
    __syncthreads();  // all have read a
    put_all<DK>(readers, row0, half, w);
  }
  __syncthreads();
  tile::copy_out<chunk, DK, crew>(static_cast<T*>(p.w) + own * chunk * DK, DK, readers, thread, chunk, DK, true);
#pragma unroll 1
  for (i64 n = 0; n < tiles; ++n) {
    const int left = static_cast<int>(min<i64>(width, p.d_v - n * width));
    __syncthreads();  // all have read the columns before
    tile::copy<chunk, 64, crew>(others, from(p.v, p.stride[2], p.v_heads) + n * width, p.stride[2][1], steps, left,
                                p.wide & 4);
    cp_async_commit();
    cp_async_wait<0>();
    __syncthreads();
    float u[4][4];
    clear(u);
    multiply<T, chunk>(u, tile::Reader<64, false>(mixed + row0 * 64), moved(tile::Reader<64, false>(others), 0, col0));
    put_all<64>(readers, row0, col0, u);
    __syncthreads();
    tile::copy_out<chunk, 64, crew>(read(n), read_stride(p), readers, thread, steps, width, true);
  }
}

}  // namespace baracuda
