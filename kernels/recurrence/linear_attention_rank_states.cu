// linear_attention_rank_states    the states before every chunk of 64 steps of the rank-one rule, and with BACK from the last
//                                 chunk to the first the gradients H of those after them.
//
// S' = diag(exp G[63]) S + k^T v + b^T (u + w S), k, b, u and w of linear_attention_rank_local.cu; what steps read of their
// states, u + w S, takes the place of u. The gradient of the state before is
// diag(exp G[63]) H + q^T dy + w^T (du + b H), where what is in brackets takes the place of du. So both are one walk. States
// are float32 from chunk to chunk, and of 16 bits where they are multiplied and kept.
//
// Schedule: a block of eight warps walks the chunks of one sequence with 64 columns of one head's state in registers. The
// order of every sum is fixed by the step's place in its sequence.
#include "recurrence/chunk_segments.cuh"
#include "recurrence/rank_chunks.cuh"

namespace baracuda {

template <class T, int DK, bool BACK, class P> BARACUDA_D void linear_attention_rank_states(const P& p) {
  using namespace recurrence::chunked;
  using recurrence::row_at;
  BARACUDA_DYNAMIC_SMEM(T, keys);           // [64][DK]: k, or q
  T* const writers = keys + chunk * DK;     // [64][DK]: b, or w
  T* const readers = writers + chunk * DK;  // [64][DK]: w, or b
  T* const memory = readers + chunk * DK;   // [DK][64]
  T* const values = memory + DK * 64;       // [64][64]: v, or dy
  T* const reads = values + area;           // [64][64]: u, then what steps read; or du
  const void* const states = BACK ? p.slopes : p.memory;
  const Walk& walk =
      BACK ? walk_of<DK, true, 0>(p, p.dfinal_state, p.dfinal_stride, p.dinitial_state, p.dinitial_stride)
           : walk_of<DK, false, DK / width>(p, p.initial_state, p.initial_stride, p.final_state, p.final_stride);
  if (!walk.there) return;
  const i64 tiles = div_up(p.d_v, width), tile_of = walk.tile, head = walk.head, column = tile_of * width;
  const i64 batch = p.bounds == nullptr ? walk.n : 0;
  const int left = static_cast<int>(min<i64>(width, p.d_v - column)), thread = static_cast<int>(threadIdx.x);
  const int row0 = thread / warp_size % 4 * 16, col0 = thread / warp_size / 4 * 32;
  const Sequence rows = walk.rows;
  const bool local = p.local != 0;
  Part<DK> state;
  walk.begin(state);
  const i64 count = div_up(rows.end - rows.begin, static_cast<i64>(chunk));
#pragma unroll 1
  for (i64 n = 0; n < count; ++n) {
    const i64 c = BACK ? count - 1 - n : n, start = rows.begin + c * chunk, own = (rows.place + c) * p.num_heads + head;
    const int steps = walk.moved ? 0 : static_cast<int>(min<i64>(chunk, rows.end - start));
    const auto kept = [&](const void* x) { return static_cast<const T*>(x) + own * chunk * DK; };
    T* const read = reads_at<T>(p, BACK ? p.du : p.u, batch, start, head, tile_of);
    __syncthreads();  // all have read the chunk before
    tile::copy<chunk, DK, crew>(readers, kept(BACK ? p.kept_writers : p.w), DK, chunk, DK, true);
    tile::copy<chunk, 64, crew>(reads, read, read_stride(p), steps, width, true);
    cp_async_commit();
    tile::copy<chunk, DK, crew>(keys, kept(BACK ? p.kept_queries : p.kept_keys), DK, chunk, DK, true);
    tile::copy<chunk, DK, crew>(writers, kept(BACK ? p.w : p.kept_writers), DK, chunk, DK, true);
    const T* const from = BACK ? row_at<T>(p.y, p.stride[4], batch, start, head)
                               : rows_for<T>(p, p.v, p.stride[2], p.v_heads, batch, start, head);
    tile::copy<chunk, 64, crew>(values, from + column, p.stride[BACK ? 4 : 2][1], steps, left,
                                p.wide & (BACK ? 16 : 4));
    cp_async_commit();
    const float* const totals = static_cast<const float*>(p.totals) + own * DK;
    put_all<64>(memory, state.row(), state.col(), state.x);
    each(state.x, state.row(), state.col(), [&](float& x, int d, int) { x *= totals[d]; });
    cp_async_wait<1>();  // all but what the state takes
    __syncthreads();
    if (!local)
      tile::copy_out<DK, 64, crew>(static_cast<T*>(const_cast<void*>(states)) + (own * tiles + tile_of) * (DK * 64), 64,
                                   memory, thread, DK, width, true);
    float u[4][4];
    clear(u);
    multiply<T, DK>(u, tile::Reader<DK, false>(readers + row0 * DK), moved(tile::Reader<64, false>(memory), 0, col0));
    each(u, row0, col0, [&](float& x, int i, int j) { x += element_of<64>(reads, i, j); });
    __syncwarp();  // a warp reads and writes its own part
    put_all<64>(reads, row0, col0, u);
    cp_async_wait<0>();
    __syncthreads();
    if (!local) tile::copy_out<chunk, 64, crew>(read, read_stride(p), reads, thread, steps, width, true);
    multiply<T, chunk>(state.x, moved(tile::Reader<DK, true>(keys), 0, state.row()),
                       moved(tile::Reader<64, false>(values), 0, state.col()));
    multiply<T, chunk>(state.x, moved(tile::Reader<DK, true>(writers), 0, state.row()),
                       moved(tile::Reader<64, false>(reads), 0, state.col()));
  }
  walk.end(state);
}

}  // namespace baracuda
