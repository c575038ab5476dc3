// linear_attention_channel_states    the states before every chunk of 64 steps where every channel has its decay, and with
//                                    BACK from the last chunk to the first the gradients H of those after them.
//
// S' = diag(exp G[63]) S + (k * exp(G[63] - G))^T u, G the sums of logs of decays within the chunk, of no less than -110
// each. u is v; of the delta rule u + w S of linear_attention_channel_local.cu, which takes the place of its u. The
// gradient of the state before is diag(exp G[63]) H + (q * exp Q)^T dy + w^T du, the last term of the delta rule alone:
// du + (k * exp(G[63] - G)) H takes the place of its du. So both are one walk, over operands that have been scaled once a
// chunk (linear_attention_channel_local.cu, _scaled.cu). States are float32 from chunk to chunk, and of 16 bits where they
// are multiplied and kept.
//
// Schedule: a block of eight warps walks the chunks of one sequence with 64 columns of one head's state in registers; the
// next chunk's operands come meanwhile, backwards of the delta rule those of its first product. The order of every sum is
// fixed by the step's place in its sequence.
#include "recurrence/channel_chunks.cuh"
#include "recurrence/chunk_segments.cuh"

namespace baracuda {

template <class T, int DK, bool DELTA, bool BACK, class P> BARACUDA_D void linear_attention_channel_states(const P& p) {
  using namespace recurrence::chunked;
  using recurrence::row_at;
  constexpr bool apart = DELTA && BACK;  // there is room for one chunk
  constexpr int stage = (DELTA ? 2 : 1) * chunk * DK + area;
  BARACUDA_DYNAMIC_SMEM(T, stages);  // of a chunk: scaled k or q [64][DK], v, u or dy [64][64], w or scaled k [64][DK]
  T* const memory = stages + (apart ? 1 : 2) * stage;  // [DK][64]
  T* const writers = memory + DK * 64;                 // [64][DK]: w, as those below backwards of the delta rule
  T* const incoming = writers + chunk * DK;            // [64][64]: du without H
  T* const given = incoming + area;                    // [64][64]: du
  const Walk& walk = BACK
                         ? walk_of<DK, true, 0>(p, p.dfinal_state, p.dfinal_stride, p.dinitial_state, p.dinitial_stride)
                         : walk_of<DK, false, DELTA ? DK / width : 0>(p, p.initial_state, p.initial_stride,
                                                                      p.final_state, p.final_stride);
  if (!walk.there) return;
  const i64 tiles = div_up(p.d_v, width), tile_of = walk.tile, head = walk.head, column = tile_of * width;
  const i64 batch = p.bounds == nullptr ? walk.n : 0;
  const int left = static_cast<int>(min<i64>(width, p.d_v - column)), thread = static_cast<int>(threadIdx.x);
  const int row0 = thread / warp_size % 4 * 16, col0 = thread / warp_size / 4 * 32;
  const Sequence rows = walk.rows;
  const bool local = p.local != 0;
  const i64 count = div_up(rows.end - rows.begin, static_cast<i64>(chunk));
  const auto own_of = [&](i64 n) { return (rows.place + (BACK ? count - 1 - n : n)) * p.num_heads + head; };
  const auto read_of = [&](i64 n) { return static_cast<T*>(BACK ? p.du : p.u) + (own_of(n) * tiles + tile_of) * area; };
  const auto load_rows = [&](T* to, const void* kept, i64 n) {
    tile::copy<chunk, DK, crew>(to, static_cast<const T*>(kept) + own_of(n) * chunk * DK, DK, chunk, DK, true);
  };
  const auto load_taken = [&](T* to, i64 n) {  // what the state takes of a chunk
    load_rows(to, BACK ? p.kept_queries : p.kept_keys, n);
    if constexpr (apart) load_rows(writers, p.w, n);
    const i64 start = rows.begin + (BACK ? count - 1 - n : n) * chunk;
    const int steps = static_cast<int>(min<i64>(chunk, rows.end - start));
    const T* const from = BACK ? row_at<T>(p.y, p.stride[4], batch, start, head)
                               : rows_for<T>(p, p.v, p.stride[2], p.v_heads, batch, start, head);
    if constexpr (DELTA && !BACK)
      tile::copy<chunk, 64, crew>(to + chunk * DK, read_of(n), 64, walk.moved ? 0 : chunk, width, true);
    else
      tile::copy<chunk, 64, crew>(to + chunk * DK, from + column, p.stride[BACK ? 4 : 2][1], steps, left,
                                  p.wide & (BACK ? 16 : 4));
  };
  const auto load_readers = [&](T* to, i64 n) {  // what reads the state, of the delta rule
    load_rows(to + chunk * DK + area, BACK ? p.kept_keys : p.w, n);
    if constexpr (apart) tile::copy<chunk, 64, crew>(incoming, read_of(n), 64, chunk, width, true);
  };
  float faded = 1.0f;  // a channel, by all steps
  Part<DK> state;
  walk.begin(state);
  if (count > 0) {
    if constexpr (!apart) load_taken(stages, 0);
    if constexpr (DELTA) load_readers(stages, 0);
  }
  cp_async_commit();
#pragma unroll 1
  for (i64 n = 0; n < count; ++n) {
    const i64 own = own_of(n);
    const bool more = n + 1 < count;
    T* const here = stages + (apart ? 0 : n % 2) * stage;
    T* const values = here + chunk * DK;
    __syncthreads();  // all have read the chunk before
    if constexpr (apart) {
      load_taken(here, n);
    } else if (more) {
      T* const next = stages + (n + 1) % 2 * stage;
      load_taken(next, n + 1);
      if constexpr (DELTA) load_readers(next, n + 1);
    }
    cp_async_commit();
    const float* const totals = static_cast<const float*>(p.totals) + own * DK;
    put_all<64>(memory, state.row(), state.col(), state.x);
    each(state.x, state.row(), state.col(), [&](float& x, int d, int) { x *= totals[d]; });
    if (!DELTA && walk.notes && thread < DK) faded *= totals[thread];
    cp_async_wait<1>();  // all but what the state takes, or the chunk that is next
    __syncthreads();
    if (!local)
      tile::copy_out<DK, 64, crew>(static_cast<T*>(BACK ? p.slopes : p.memory) + (own * tiles + tile_of) * (DK * 64),
                                   64, memory, thread, DK, width, true);
    if constexpr (DELTA) {
      T* const before = BACK ? incoming : values;
      T* const read = BACK ? given : values;
      float u[4][4];
      clear(u);
      multiply<T, DK>(u, tile::Reader<DK, false>(values + area + row0 * DK),
                      moved(tile::Reader<64, false>(memory), 0, col0));
      each(u, row0, col0, [&](float& x, int i, int j) { x += element_of<64>(before, i, j); });
      __syncwarp();  // a warp reads and writes its own part
      put_all<64>(read, row0, col0, u);
      if constexpr (apart) cp_async_wait<0>();
      __syncthreads();
      if constexpr (apart) {
        if (more) load_readers(here, n + 1);
        cp_async_commit();
      }
      if (!local) tile::copy_out<chunk, 64, crew>(read_of(n), 64, read, thread, chunk, width, true);
    }
    multiply<T, chunk>(state.x, moved(tile::Reader<DK, true>(here), 0, state.row()),
                       moved(tile::Reader<64, false>(values), 0, state.col()));
    if constexpr (apart)
      multiply<T, chunk>(state.x, moved(tile::Reader<DK, true>(writers), 0, state.row()),
                         moved(tile::Reader<64, false>(given), 0, state.col()));
  }
  walk.end(state);
  if (!DELTA && walk.notes && thread < DK) moves_at<DK, false>(p, walk.border, head)[thread] = faded;
}

}  // namespace baracuda
