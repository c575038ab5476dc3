// linear_attention_outputs    y of every chunk of 64 steps from the state before it:
//                             y = scale (diag(exp G) q S + tril(q k^T * D) u).
//
// u is v; of the delta rule what linear_attention_states.cu left. Schedule: a block of eight warps has a chunk of one head,
// and goes through its columns 64 at a time. The order of every sum is fixed by the step's place in its sequence; it is
// that of linear_attention_chunks.cu.
#include "recurrence/chunk_products.cuh"

namespace baracuda {

template <class T, int DK, bool DELTA, class P> BARACUDA_D void linear_attention_outputs(const P& p) {
  using namespace recurrence::chunked;
  using recurrence::row_at;
  BARACUDA_DYNAMIC_SMEM(T, queries);     // [64][DK]
  T* const keys = queries + chunk * DK;  // [64][DK]
  T* const scores = keys + chunk * DK;   // [64][64]
  T* const values = scores + area;       // [64][64]: v or u, then y
  T* const memory = values + area;       // [DK][64]
  __shared__ float sums[chunk], of_query[chunk], of_key[chunk];
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
  const auto copy_tiles = [&](i64 n) {
    const i64 at = own * tiles + n, column = n * width;
    const int left = static_cast<int>(min<i64>(width, p.d_v - column));
    if constexpr (DELTA) {
      tile::copy<chunk, 64, crew>(values, static_cast<const T*>(p.u) + at * area, 64, chunk, width, true);
    } else {
      const T* const v = rows_for<T>(p, p.v, p.stride[2], p.v_heads, here.batch, here.start, head);
      tile::copy<chunk, 64, crew>(values, v + column, p.stride[2][1], steps, left, p.wide & 4);
    }
    tile::copy<DK, 64, crew>(memory, static_cast<const T*>(p.memory) + at * (DK * 64), 64, DK, width, true);
    cp_async_commit();
  };
  tile::copy<chunk, DK, crew>(queries, rows_for<T>(p, p.q, p.stride[0], p.q_heads, here.batch, here.start, head),
                              p.stride[0][1], steps, p.d_k, p.wide & 1);
  tile::copy<chunk, DK, crew>(keys, rows_for<T>(p, p.k, p.stride[1], p.k_heads, here.batch, here.start, head),
                              p.stride[1][1], steps, p.d_k, p.wide & 2);
  cp_async_commit();
  copy_tiles(0);
  if (warp == 0) sum_logs(sums, p, here.batch, here.start, head, steps);
  cp_async_wait<1>();
  __syncthreads();
  if (thread < chunk) of_query[thread] = static_cast<float>(p.scale) * norm_of<DK>(p, queries, thread);
  else if (thread < 2 * chunk) of_key[thread - chunk] = norm_of<DK>(p, keys, thread - chunk);
  __syncthreads();
  const tile::Reader<DK, false> query(queries + row0 * DK);
  float y[4][4];
  clear(y);
  multiply<T, DK>(y, query, moved(tile::Reader<DK, true>(keys), col0, 0));
  each(y, row0, col0, [&](float& x, int i, int j) {
    x = j <= i ? x * (of_query[i] * of_key[j]) * fade_of(p, sums[i] - sums[j]) : 0.0f;
  });
  put_all<64>(scores, row0, col0, y);
  float since[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int i = row0 + lane_id() / 4 + 8 * h;
    since[h] = of_query[i] * fade_of(p, sums[i]);
  }
#pragma unroll 1
  for (i64 n = 0; n < tiles; ++n) {
    cp_async_wait<0>();
    __syncthreads();
    clear(y);
    multiply<T, DK>(y, query, moved(tile::Reader<64, false>(memory), 0, col0));
#pragma unroll
    for (int c = 0; c < 4; ++c) y[c][0] *= since[0], y[c][1] *= since[0], y[c][2] *= since[1], y[c][3] *= since[1];
    multiply<T, chunk>(y, tile::Reader<64, false>(scores + row0 * 64), moved(tile::Reader<64, false>(values), 0, col0));
    __syncthreads();  // all have read the values
    put_all<64>(values, row0, col0, y);
    __syncthreads();
    const i64 column = n * width;
    tile::copy_out<chunk, 64, crew>(row_at<T>(p.y, p.stride[4], here.batch, here.start, head) + column, p.stride[4][1],
                                    values, thread, steps, static_cast<int>(min<i64>(width, p.d_v - column)),
                                    p.wide & 16);
    __syncthreads();  // all have read y
    if (n + 1 < tiles) copy_tiles(n + 1);
  }
}

}  // namespace baracuda
