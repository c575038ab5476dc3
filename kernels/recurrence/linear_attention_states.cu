// linear_attention_states    the states before every chunk of 64 steps, from the first to the last.
//
// S' = exp(G[63]) S + k^T diag(exp(G[63] - G)) u, where u is v; of the delta rule u + w S of linear_attention_local.cu,
// which takes the place of its u. States are float32 from chunk to chunk, and of 16 bits where they are multiplied and
// kept.
//
// Schedule: a block of eight warps walks the chunks of one sequence with 64 columns of one head's state in registers; the
// next chunk's operands come meanwhile. The
// order of every sum is fixed by the step's place in its sequence; it is that of linear_attention_chunks.cu.
#include "recurrence/chunk_segments.cuh"

namespace baracuda {

template <class T, int DK, bool DELTA, class P> BARACUDA_D void linear_attention_states(const P& p) {
  using namespace recurrence::chunked;
  using recurrence::row_at;
  constexpr int stage = chunk * DK + area;
  BARACUDA_DYNAMIC_SMEM(T, stages);        // of two: k [64][DK], v or u [64][64]
  T* const weighted = stages + 2 * stage;  // [64][64]: u as the state takes it
  T* const memory = weighted + area;       // [DK][64]
  T* const reads = memory + DK * 64;       // [64][DK]: w, of the delta rule
  __shared__ float logs[2][chunk], of_key[chunk];
  const Walk& walk =
      walk_of<DK, false, DELTA ? DK / width : 0>(p, p.initial_state, p.initial_stride, p.final_state, p.final_stride);
  if (!walk.there) return;
  const i64 tiles = div_up(p.d_v, width), tile_of = walk.tile, head = walk.head, column = tile_of * width;
  const i64 batch = p.bounds == nullptr ? walk.n : 0;
  const int left = static_cast<int>(min<i64>(width, p.d_v - column)), thread = static_cast<int>(threadIdx.x);
  const int warp = thread / warp_size, row0 = warp % 4 * 16, col0 = warp / 4 * 32;
  const Sequence rows = walk.rows;
  const bool local = p.local != 0;
  Part<DK> state;
  walk.begin(state);
  i64 own = rows.place * p.num_heads + head;
  const auto written = [&](i64 own) { return static_cast<T*>(p.u) + (own * tiles + tile_of) * area; };
  const auto load_stage = [&](T* to, i64 start, i64 own) {
    const int steps = static_cast<int>(min<i64>(chunk, rows.end - start));
    tile::copy<chunk, DK, crew>(to, rows_for<T>(p, p.k, p.stride[1], p.k_heads, batch, start, head), p.stride[1][1],
                                steps, p.d_k, p.wide & 2);
    if constexpr (DELTA) {
      tile::copy<chunk, 64, crew>(to + chunk * DK, written(own), 64, walk.moved ? 0 : chunk, width, true);
    } else {
      tile::copy<chunk, 64, crew>(to + chunk * DK,
                                  rows_for<T>(p, p.v, p.stride[2], p.v_heads, batch, start, head) + column,
                                  p.stride[2][1], steps, left, p.wide & 4);
    }
  };
  const auto load_reads = [&](i64 own) {
    tile::copy<chunk, DK, crew>(reads, static_cast<const T*>(p.w) + own * chunk * DK, DK, chunk, DK, true);
  };
  const auto read_logs = [&](Logs& to, i64 start) {
    to.read(p, batch, start, head, static_cast<int>(min<i64>(chunk, rows.end - start)));
  };
  Logs next;
  if (rows.begin < rows.end) {
    load_stage(stages, rows.begin, own);
    if constexpr (DELTA) load_reads(own);
    if (warp == 0) read_logs(next, rows.begin), next.sum(logs[0]);
  }
  cp_async_commit();
  int turn = 0;
  float faded = 1.0f;  // by all steps
#pragma unroll 1
  for (i64 start = rows.begin; start < rows.end; start += chunk, own += p.num_heads, turn ^= 1) {
    const bool more = start + chunk < rows.end;
    T* const keys = stages + turn * stage;
    T* const values = keys + chunk * DK;
    const float* const sums = logs[turn];
    __syncthreads();  // all have read the chunk before
    if (more) load_stage(stages + (turn ^ 1) * stage, start + chunk, own + p.num_heads);
    cp_async_commit();
    if (more && warp == 0) read_logs(next, start + chunk);
    put_all<64>(memory, state.row(), state.col(), state.x);
    cp_async_wait<1>();  // all but the stage that is next
    __syncthreads();
    if (thread < chunk) of_key[thread] = norm_of<DK>(p, keys, thread);
    if (!local)
      tile::copy_out<DK, 64, crew>(static_cast<T*>(p.memory) + (own * tiles + tile_of) * (DK * 64), 64, memory, thread,
                                   DK, width, true);
    __syncthreads();
    const float total = sums[chunk - 1];
    if constexpr (DELTA) {
      float u[4][4];
      clear(u);
      multiply<T, DK>(u, tile::Reader<DK, false>(reads + row0 * DK), moved(tile::Reader<64, false>(memory), 0, col0));
      each(u, row0, col0, [&](float& x, int i, int j) { x += element_of<64>(values, i, j); });
      __syncwarp();  // a warp reads and writes its own part
      put_all<64>(values, row0, col0, u);
      each(u, row0, col0, [&](float& x, int i, int) { x *= of_key[i] * fade_of(p, total - sums[i]); });
      put_all<64>(weighted, row0, col0, u);
    } else {
      scale_rows(weighted, values, [&](int i) { return of_key[i] * fade_of(p, total - sums[i]); });
    }
    __syncthreads();
    if constexpr (DELTA) {
      if (more) load_reads(own + p.num_heads);
      cp_async_commit();
      if (!local) tile::copy_out<chunk, 64, crew>(written(own), 64, values, thread, chunk, width, true);
    }
    const float whole = fade_of(p, total);
    state.scale(whole), faded *= whole;
    multiply<T, chunk>(state.x, moved(tile::Reader<DK, true>(keys), 0, state.row()),
                       moved(tile::Reader<64, false>(weighted), 0, state.col()));
    if (more && warp == 0) next.sum(logs[turn ^ 1]);
  }
  walk.end(state);
  if (!DELTA && walk.notes && thread < DK) moves_at<DK, false>(p, walk.border, head)[thread] = faded;
}

}  // namespace baracuda
