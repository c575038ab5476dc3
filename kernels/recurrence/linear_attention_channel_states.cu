// linear_attention_channel_states    the states before every chunk of 64 steps where every channel has its decay.
//
// S' = diag(exp G[63]) S + (k * exp(G[63] - G))^T u, G the sums of logs of decays within the chunk, of no less than -110
// each. u is v; of the delta rule u + w S of linear_attention_channel_local.cu, which takes the place of its u. States are float32 from chunk to chunk, and of 16 bits where they are kept.
//
// Schedule: a block of eight warps walks the chunks of one sequence with 64 columns of one head's state in registers. The
// order of every sum is fixed by the step's place in its sequence.
#include "recurrence/channel_chunks.cuh"
#include "recurrence/chunk_segments.cuh"

namespace baracuda {

template <class T, int DK, bool DELTA, class P> BARACUDA_D void linear_attention_channel_states(const P& p) {
  using namespace recurrence::chunked;
  using recurrence::row_at;
  BARACUDA_DYNAMIC_SMEM(T, keys);                                  // [64][DK]
  T* const values = keys + chunk * DK;                             // [64][64]
  T* const memory = values + area;                                 // [DK][64]
  float* const logs = reinterpret_cast<float*>(memory + DK * 64);  // [64][DK]
  T* const reads = reinterpret_cast<T*>(logs + chunk * DK);        // [64][DK]: w, of the delta rule
  __shared__ float of_key[chunk];
  const Walk& walk =
      walk_of<DK, false, DELTA ? DK / width : 0>(p, p.initial_state, p.initial_stride, p.final_state, p.final_stride);
  if (!walk.there) return;
  const i64 tiles = div_up(p.d_v, width), tile_of = walk.tile, head = walk.head, column = tile_of * width;
  const i64 batch = p.bounds == nullptr ? walk.n : 0;
  const int left = static_cast<int>(min<i64>(width, p.d_v - column)), thread = static_cast<int>(threadIdx.x);
  const int row0 = thread / warp_size % 4 * 16, col0 = thread / warp_size / 4 * 32;
  const Sequence rows = walk.rows;
  const bool local = p.local != 0;
  float faded = 1.0f;  // a channel, by all steps
  Part<DK> state;
  walk.begin(state);
  i64 own = rows.place * p.num_heads + head;
#pragma unroll 1
  for (i64 start = rows.begin; start < rows.end; start += chunk, own += p.num_heads) {
    const int steps = static_cast<int>(min<i64>(chunk, rows.end - start));
    T* const written = static_cast<T*>(p.u) + (own * tiles + tile_of) * area;
    __syncthreads();  // all have read the chunk before
    tile::copy<chunk, DK, crew>(keys, rows_for<T>(p, p.k, p.stride[1], p.k_heads, batch, start, head), p.stride[1][1],
                                steps, p.d_k, p.wide & 2);
    if constexpr (DELTA) {
      tile::copy<chunk, 64, crew>(values, written, 64, walk.moved ? 0 : chunk, width, true);
      tile::copy<chunk, DK, crew>(reads, static_cast<const T*>(p.w) + own * chunk * DK, DK, chunk, DK, true);
    } else {
      tile::copy<chunk, 64, crew>(values, rows_for<T>(p, p.v, p.stride[2], p.v_heads, batch, start, head) + column,
                                  p.stride[2][1], steps, left, p.wide & 4);
    }
    cp_async_commit();
    put_all<64>(memory, state.row(), state.col(), state.x);
    sum_channels<DK>(logs, p, batch, start, head, steps);
    cp_async_wait<0>();
    __syncthreads();
    if (thread < chunk) of_key[thread] = norm_of<DK>(p, keys, thread);
    if (!local)
      tile::copy_out<DK, 64, crew>(static_cast<T*>(p.memory) + (own * tiles + tile_of) * (DK * 64), 64, memory, thread,
                                   DK, width, true);
    __syncthreads();
    const float* const total = logs + (chunk - 1) * DK;
    scale_channels<DK>(keys, keys, 0, chunk,
                       [&](int i, int d) { return of_key[i] * fade(total[d] - logs[i * DK + d]); });
    each(state.x, state.row(), state.col(), [&](float& x, int d, int) { x *= fade(total[d]); });
    if (!DELTA && walk.notes && thread < DK) faded *= fade(total[thread]);
    if constexpr (DELTA) {
      float u[4][4];
      clear(u);
      multiply<T, DK>(u, tile::Reader<DK, false>(reads + row0 * DK), moved(tile::Reader<64, false>(memory), 0, col0));
      each(u, row0, col0, [&](float& x, int i, int j) { x += element_of<64>(values, i, j); });
      __syncwarp();  // a warp reads and writes its own part
      put_all<64>(values, row0, col0, u);
    }
    __syncthreads();
    if constexpr (DELTA) {
      if (!local) tile::copy_out<chunk, 64, crew>(written, 64, values, thread, chunk, width, true);
    }
    multiply<T, chunk>(state.x, moved(tile::Reader<DK, true>(keys), 0, state.row()),
                       moved(tile::Reader<64, false>(values), 0, state.col()));
  }
  walk.end(state);
  if (!DELTA && walk.notes && thread < DK) moves_at<DK, false>(p, walk.border, head)[thread] = faded;
}

}  // namespace baracuda
