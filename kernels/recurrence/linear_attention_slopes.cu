// linear_attention_slopes    the gradients of the states after every chunk of 64 steps, from the last to the first.
//
// With H the gradient of the state after a chunk, that of the state before it is
//   exp(G[63]) H + (diag(exp G) q)^T dy + w^T du,
// the last term of the delta rule alone: du + diag(exp(G[63] - G)) k H takes the place of the du that
// linear_attention_local.cu made. H is float32 from chunk to chunk, and of 16 bits where it is multiplied and kept.
//
// Schedule: a block of eight warps walks the chunks of one sequence with 64 columns of one head's H in registers; the next
// chunk's operands come meanwhile. The order of every sum is fixed by the step's place in its sequence.
#include "recurrence/chunk_segments.cuh"

namespace baracuda {

template <class T, int DK, bool DELTA, class P> BARACUDA_D void linear_attention_slopes(const P& p) {
  using namespace recurrence::chunked;
  using recurrence::row_at;
  constexpr int pair = chunk * DK + area, stages = DELTA ? 1 : 2;
  BARACUDA_DYNAMIC_SMEM(T, pairs);            // of a stage: q [64][DK], dy [64][64]
  T* const weighted = pairs + stages * pair;  // [64][64]: dy as the state takes it
  T* const slopes = weighted + area;          // [DK][64]
  T* const keys = slopes + DK * 64;           // [64][DK], of the delta rule as are those below
  T* const reads = keys + chunk * DK;         // [64][DK]: w
  T* const incoming = reads + chunk * DK;     // [64][64]: du without H
  T* const written = incoming + area;         // [64][64]: du
  __shared__ float logs[2][chunk], of_query[chunk], of_key[chunk];
  const Walk& walk = walk_of<DK, true, 0>(p, p.dfinal_state, p.dfinal_stride, p.dinitial_state, p.dinitial_stride);
  if (!walk.there) return;
  const i64 tiles = div_up(p.d_v, width), tile_of = walk.tile, head = walk.head, column = tile_of * width;
  const i64 batch = p.bounds == nullptr ? walk.n : 0;
  const int left = static_cast<int>(min<i64>(width, p.d_v - column)), thread = static_cast<int>(threadIdx.x);
  const int warp = thread / warp_size, row0 = warp % 4 * 16, col0 = warp / 4 * 32;
  const Sequence rows = walk.rows;
  const bool local = p.local != 0;
  float faded = 1.0f;  // by all steps
  Part<DK> slope;
  walk.begin(slope);
  const auto kept = [&](i64 own) { return static_cast<T*>(p.du) + (own * tiles + tile_of) * area; };
  const auto steps_from = [&](i64 start) { return static_cast<int>(min<i64>(chunk, rows.end - start)); };
  const auto load_pair = [&](T* to, i64 start, i64 own) {  // what the state takes
    const int steps = steps_from(start);
    tile::copy<chunk, DK, crew>(to, rows_for<T>(p, p.q, p.stride[0], p.q_heads, batch, start, head), p.stride[0][1],
                                steps, p.d_k, p.wide & 1);
    tile::copy<chunk, 64, crew>(to + chunk * DK, row_at<T>(p.y, p.stride[4], batch, start, head) + column,
                                p.stride[4][1], steps, left, p.wide & 16);
    if constexpr (DELTA)
      tile::copy<chunk, DK, crew>(reads, static_cast<const T*>(p.w) + own * chunk * DK, DK, chunk, DK, true);
  };
  const auto load_keys = [&](i64 start, i64 own) {  // what du takes
    tile::copy<chunk, DK, crew>(keys, rows_for<T>(p, p.k, p.stride[1], p.k_heads, batch, start, head), p.stride[1][1],
                                steps_from(start), p.d_k, p.wide & 2);
    tile::copy<chunk, 64, crew>(incoming, kept(own), 64, chunk, width, true);
  };
  const i64 last = div_up(rows.end - rows.begin, static_cast<i64>(chunk)) - 1;
  Logs next;
  if (last >= 0) {
    const i64 start = rows.begin + last * chunk, own = (rows.place + last) * p.num_heads + head;
    if constexpr (DELTA) load_keys(start, own), cp_async_commit();
    load_pair(pairs + last % stages * pair, start, own);
    if (warp == 0) next.read(p, batch, start, head, steps_from(start)), next.sum(logs[last % 2]);
  }
  cp_async_commit();
#pragma unroll 1
  for (i64 c = last; c >= 0; --c) {
    const i64 start = rows.begin + c * chunk, own = (rows.place + c) * p.num_heads + head;
    const float* const sums = logs[c % 2];
    T* const queries = pairs + c % stages * pair;
    T* const outputs = queries + chunk * DK;
    __syncthreads();  // all have read the chunk before
    if (DELTA ? c < last : c > 0) {
      const i64 other = DELTA ? c : c - 1;
      load_pair(pairs + other % stages * pair, rows.begin + other * chunk, (rows.place + other) * p.num_heads + head);
    }
    if (!DELTA || c < last) cp_async_commit();
    if (c > 0 && warp == 0) next.read(p, batch, start - chunk, head, chunk);
    put_all<64>(slopes, slope.row(), slope.col(), slope.x);
    cp_async_wait<1>();  // all but the pair of the delta rule, or of the chunk that is next
    __syncthreads();
    if (!DELTA && thread < chunk) of_query[thread] = static_cast<float>(p.scale) * norm_of<DK>(p, queries, thread);
    if (DELTA && thread < chunk) of_key[thread] = norm_of<DK>(p, keys, thread);
    if (!local)
      tile::copy_out<DK, 64, crew>(static_cast<T*>(p.slopes) + (own * tiles + tile_of) * (DK * 64), 64, slopes, thread,
                                   DK, width, true);
    __syncthreads();
    const float total = sums[chunk - 1];
    if constexpr (DELTA) {
      float du[4][4];
      clear(du);
      multiply<T, DK>(du, tile::Reader<DK, false>(keys + row0 * DK), moved(tile::Reader<64, false>(slopes), 0, col0));
      each(du, row0, col0, [&](float& x, int i, int j) {
        x = math::fma(x, of_key[i] * fade_of(p, total - sums[i]), element_of<64>(incoming, i, j));
      });
      put_all<64>(written, row0, col0, du);
      cp_async_wait<0>();
      __syncthreads();  // all have read the keys, and the pair is there
      if (c > 0) load_keys(start - chunk, own - p.num_heads);
      cp_async_commit();
      if (thread < chunk) of_query[thread] = static_cast<float>(p.scale) * norm_of<DK>(p, queries, thread);
      if (!local) tile::copy_out<chunk, 64, crew>(kept(own), 64, written, thread, chunk, width, true);
      __syncthreads();
    }
    scale_rows(weighted, outputs, [&](int i) { return of_query[i] * fade_of(p, sums[i]); });
    __syncthreads();
    const float whole = fade_of(p, total);
    slope.scale(whole), faded *= whole;
    multiply<T, chunk>(slope.x, moved(tile::Reader<DK, true>(queries), 0, slope.row()),
                       moved(tile::Reader<64, false>(weighted), 0, slope.col()));
    if constexpr (DELTA)
      multiply<T, chunk>(slope.x, moved(tile::Reader<DK, true>(reads), 0, slope.row()),
                         moved(tile::Reader<64, false>(written), 0, slope.col()));
    if (c > 0 && warp == 0) next.sum(logs[(c - 1) % 2]);
  }
  walk.end(slope);
  if (!DELTA && walk.notes && thread < DK) moves_at<DK, false>(p, walk.border, head)[thread] = faded;
}

}  // namespace baracuda
