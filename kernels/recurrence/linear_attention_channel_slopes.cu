// linear_attention_channel_slopes    the gradients of the states after every chunk of 64 steps, from the last to the first,
//                                    where every channel has its decay.
//
// With H the gradient of the state after a chunk, that of the state before it is
//   diag(exp G[63]) H + (q * exp Q)^T dy + w^T du,
// the last term of the delta rule alone: du + (k * exp(G[63] - G)) H takes the place of the du that
// linear_attention_channel_local.cu made. Q is G, with a bonus G of the step before. H is float32 from chunk to chunk, and
// of 16 bits where it is multiplied and kept.
//
// Schedule: a block of eight warps walks the chunks of one sequence with 64 columns of one head's H in registers. The order
// of every sum is fixed by the step's place in its sequence.
#include "recurrence/channel_chunks.cuh"
#include "recurrence/chunk_segments.cuh"

namespace baracuda {

template <class T, int DK, bool DELTA, class P> BARACUDA_D void linear_attention_channel_slopes(const P& p) {
  using namespace recurrence::chunked;
  using recurrence::row_at;
  BARACUDA_DYNAMIC_SMEM(T, queries);                               // [64][DK]; of the delta rule k before q
  T* const outputs = queries + chunk * DK;                         // [64][64]
  T* const slopes = outputs + area;                                // [DK][64]
  float* const logs = reinterpret_cast<float*>(slopes + DK * 64);  // [64][DK]
  T* const reads = reinterpret_cast<T*>(logs + chunk * DK);        // [64][DK]: w, of the delta rule
  T* const written = reads + chunk * DK;                           // [64][64]: du
  __shared__ float factors[chunk];
  const Walk& walk = walk_of<DK, true, 0>(p, p.dfinal_state, p.dfinal_stride, p.dinitial_state, p.dinitial_stride);
  if (!walk.there) return;
  const i64 tiles = div_up(p.d_v, width), tile_of = walk.tile, head = walk.head, column = tile_of * width;
  const i64 batch = p.bounds == nullptr ? walk.n : 0;
  const int left = static_cast<int>(min<i64>(width, p.d_v - column)), thread = static_cast<int>(threadIdx.x);
  const int row0 = thread / warp_size % 4 * 16, col0 = thread / warp_size / 4 * 32;
  const Sequence rows = walk.rows;
  const bool local = p.local != 0;
  float faded = 1.0f;  // a channel, by all steps
  Part<DK> slope;
  walk.begin(slope);
  const bool before = p.bonus != nullptr;
  const auto query_log = [&](int i, int d) {
    return !before ? logs[i * DK + d] : i > 0 ? logs[(i - 1) * DK + d] : 0.0f;
  };
#pragma unroll 1
  for (i64 c = div_up(rows.end - rows.begin, static_cast<i64>(chunk)) - 1; c >= 0; --c) {
    const i64 start = rows.begin + c * chunk, own = (rows.place + c) * p.num_heads + head;
    const int steps = static_cast<int>(min<i64>(chunk, rows.end - start));
    T* const kept = static_cast<T*>(p.du) + (own * tiles + tile_of) * area;
    const auto load_queries = [&] {
      tile::copy<chunk, DK, crew>(queries, rows_for<T>(p, p.q, p.stride[0], p.q_heads, batch, start, head),
                                  p.stride[0][1], steps, p.d_k, p.wide & 1);
      cp_async_commit();
    };
    __syncthreads();  // all have read the chunk before
    tile::copy<chunk, 64, crew>(outputs, row_at<T>(p.y, p.stride[4], batch, start, head) + column, p.stride[4][1],
                                steps, left, p.wide & 16);
    if constexpr (DELTA) {
      tile::copy<chunk, DK, crew>(queries, rows_for<T>(p, p.k, p.stride[1], p.k_heads, batch, start, head),
                                  p.stride[1][1], steps, p.d_k, p.wide & 2);
      tile::copy<chunk, DK, crew>(reads, static_cast<const T*>(p.w) + own * chunk * DK, DK, chunk, DK, true);
      tile::copy<chunk, 64, crew>(written, kept, 64, chunk, width, true);
      cp_async_commit();
    } else {
      load_queries();
    }
    put_all<64>(slopes, slope.row(), slope.col(), slope.x);
    sum_channels<DK>(logs, p, batch, start, head, steps);
    cp_async_wait<0>();
    __syncthreads();
    const float* const total = logs + (chunk - 1) * DK;
    if (!local)
      tile::copy_out<DK, 64, crew>(static_cast<T*>(p.slopes) + (own * tiles + tile_of) * (DK * 64), 64, slopes, thread,
                                   DK, width, true);
    if constexpr (DELTA) {
      if (thread < chunk) factors[thread] = norm_of<DK>(p, queries, thread);
      __syncthreads();
      scale_channels<DK>(queries, queries, 0, chunk,
                         [&](int i, int d) { return factors[i] * fade(total[d] - logs[i * DK + d]); });
      __syncthreads();
      float du[4][4];
      clear(du);
      multiply<T, DK>(du, tile::Reader<DK, false>(queries + row0 * DK),
                      moved(tile::Reader<64, false>(slopes), 0, col0));
      each(du, row0, col0, [&](float& x, int i, int j) { x += element_of<64>(written, i, j); });
      __syncwarp();  // a warp reads and writes its own part
      put_all<64>(written, row0, col0, du);
      __syncthreads();  // all have read the keys
      load_queries();
      if (!local) tile::copy_out<chunk, 64, crew>(kept, 64, written, thread, chunk, width, true);
      cp_async_wait<0>();
      __syncthreads();
    }
    if (thread < chunk) factors[thread] = static_cast<float>(p.scale) * norm_of<DK>(p, queries, thread);
    __syncthreads();
    scale_channels<DK>(queries, queries, 0, chunk, [&](int i, int d) { return factors[i] * fade(query_log(i, d)); });
    each(slope.x, slope.row(), slope.col(), [&](float& x, int d, int) { x *= fade(total[d]); });
    if (!DELTA && walk.notes && thread < DK) faded *= fade(total[thread]);
    __syncthreads();
    multiply<T, chunk>(slope.x, moved(tile::Reader<DK, true>(queries), 0, slope.row()),
                       moved(tile::Reader<64, false>(outputs), 0, slope.col()));
    if constexpr (DELTA)
      multiply<T, chunk>(slope.x, moved(tile::Reader<DK, true>(reads), 0, slope.row()),
                         moved(tile::Reader<64, false>(written), 0, slope.col()));
  }
  walk.end(slope);
  if (!DELTA && walk.notes && thread < DK) moves_at<DK, false>(p, walk.border, head)[thread] = faded;
}

}  // namespace baracuda
