// sdpa_block_sparse_mma    y[i] = sum_j softmax_j(scale q[i] k[j]) v[j] over the keys j whose block of the pattern is
//   set;   lse[i] = log sum_j exp(scale q[i] k[j])
//
// As flash_sdpa_mma.cu: a block has a tile of queries of one head, both products are mma.sync, a warp has 16 MT rows of
// the tile. Only tiles of keys with a set block are loaded. A warp skips a tile that none of its rows sees; blocks that
// end within a warp's part of a tile are masked there. STAGES 1 loads keys while values are multiplied, and values
// while keys are; STAGES 2 loads a whole tile ahead. The order of every sum is fixed by (element, D) and by the
// pattern.
#include "attention/block_pattern.cuh"
#include "attention/flash_mma.cuh"

namespace baracuda {

// Where blocks of the pattern may end: not within a tile, not within a warp's part of one, or anywhere.
enum class Borders { between_tiles, between_warps, anywhere };

namespace attention {

// Which keys of the tile at k0 a warp's rows see by the pattern and the window, a word of bits for each row; false
// where they see none.
template <int KEYS, int MT, class Pattern>
BARACUDA_D bool find_seen(u64 (&seen)[MT][2], const Pattern& pattern, int query0, int k0, const TileWindow& window) {
  u64 any = 0;
#pragma unroll
  for (int m = 0; m < MT; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = 16 * m + 8 * half + lane_id() / 4;
      seen[m][half] = pattern.template keys_of<KEYS>(query0 + row, k0);
      seen[m][half] &= low_bits(min(window.left, window.past + row)) & ~low_bits(window.from + row);
      any |= seen[m][half];
    }
  }
  return __any_sync(full_warp, any != 0);
}

}  // namespace attention

template <class T, int D, int WARPS, int MT, int KEYS, int STAGES, Borders BORDERS, class P>
BARACUDA_D void sdpa_block_sparse_mma(const P& p) {
  using namespace attention;
  constexpr bool CUTS = BORDERS == Borders::anywhere;
  constexpr int THREADS = WARPS * warp_size, ROWS = WARPS * MT * 16, TILE = KEYS * D;
  BARACUDA_DYNAMIC_SMEM(T, queries);       // [ROWS][D], at the end the outputs
  T* const keys = queries + ROWS * D;      // [STAGES][KEYS][D]
  T* const values = keys + STAGES * TILE;  // [STAGES][KEYS][D]

  const Work work = Dense::find<ROWS>(p);
  const int block0 = static_cast<int>(work.first), row0 = static_cast<int>(threadIdx.x) / warp_size * MT * 16;
  const int query0 = block0 + row0;  // the warp's first query
  const T* const q = work.queries<T>(p.q, p.stride[0]);
  KeyRows<P> source(p, work);
  const Strided<T> k = source.template keys<T>(), v = source.template values<T>();
  const int row_count = inside<ROWS>(work.query_len, work.first);
  const float scale_log2 = static_cast<float>(p.scale * 1.4426950408889634);
  const Span<ROWS> span(p, work);
  // end of the keys that this warp sees, and that the block sees
  const int own_end = span.end(min(row_count, row0 + 16 * MT)), last = span.end(row_count);

  const BlockPattern<P, CUTS> pattern(p, work.b, work.h);
  Search search;
  const auto visit = [&](int k0) {  // the first tile from k0 on that is not skipped; `last` or more where there is none
    return static_cast<int>(pattern.template visit<KEYS, false>(search, block0, ROWS, k0, last));
  };
  KeyTiles<T, D, D, KEYS, STAGES, THREADS, tile::InPlace, KeyRows<P>, Strided<T>, EachWide<P>> tiles{
      source, k, v, keys, values, span.key_len, last, p.d_k, p.d_v, {p}};
  const auto begin_walk = [&] {
    search = {};
    tiles.stage = 0;
    const int k0 = visit(span.template first<KEYS>());
    if (k0 < last) tiles.load_first(k0);
    cp_async_commit();
    return k0;
  };

  // Copy the queries and the first tile.
  tile::copy<ROWS, D, THREADS>(queries, q, p.stride[0][2], row_count, p.d_k, p.wide & 1);
  int k0 = begin_walk();
  T* const own = queries + row0 * D;
  sign_queries<T, 16 * MT * D>(own, p.sign);

  const tile::Reader<D, false> query(own), value(values);
  const tile::Reader<D, true> key(keys);
  Rows<T, D, MT, KEYS> rows;
  bool careful = false;  // all is computed again from differences of scores: see Rows::lost_base
  for (;;) {
#pragma unroll 1
    for (; k0 < last; tiles.advance()) {
      const int next = visit(k0 + KEYS);
      tiles.begin(k0, next);

      // Whether the warp sees part of the tile.
      const TileWindow window(span, k0, row0);
      u64 seen[MT][2];
      bool busy = k0 < own_end;
      if constexpr (BORDERS == Borders::between_warps) busy = busy && !pattern.hides(query0, k0);
      else if constexpr (CUTS) busy = find_seen<KEYS>(seen, pattern, query0, k0, window);
      const bool limited = span.template cuts<KEYS>(k0);
      T* const here = tiles.tile_of_values();
      const auto nonfinite = [&] { return (CUTS || (span.bounded && limited)) && tiles.has_nonfinite(here); };
      if (busy) {
        score<T, D, MT, KEYS>(rows.scores, query, key, tiles.keys_at());
        tiles.middle(next);
        // Online softmax.
        if constexpr (CUTS) rows.hide(seen);
        else if (limited) rows.mask(window.left, window.from, window.past);
        if (careful) rows.template weigh<Scores::exact>(scale_log2);
        else rows.weigh(scale_log2);
        rows.rescale();
        rows.pack();
        // Outputs.
        if (nonfinite()) {  // 0 times infinity is NaN, but a masked value adds nothing
          rows.template add_nonfinite<tile::Rows<D>>(here, window.left, [&](int row, int j) {
            if constexpr (CUTS) return window.sees(row, j) && !pattern.hides(query0 + row, k0 + j);
            else return window.sees(row, j);
          });
          tiles.clear_nonfinite(here);
        }
        multiply<T, D, MT, KEYS>(rows.acc, rows.weights, value, tiles.values_at());
      } else {  // only other warps see part of the tile; this one meets them at the barriers
        tiles.middle(next);
        if (nonfinite()) tiles.clear_nonfinite(here);
      }
      k0 = next;
    }
    if (careful || !__syncthreads_or(rows.lost_base())) break;
    careful = true;
    rows.clear();
    k0 = begin_walk();
  }

  // Store the outputs, by way of the warp's queries.
  cp_async_wait<0>();
  __syncthreads();  // other threads' copies of q must not meet the outputs where no tile was visited
  float* const lse = p.lse == nullptr ? nullptr : static_cast<float*>(p.lse) + work.stat + row0;
  rows.template finish<tile::Rows<D>>(own, 0, lse, row_count - row0, 1.0f,
                                      careful ? static_cast<float>(p.scale) : ln_2<float>);
  __syncwarp();
  T* const y = work.outputs<T>(p.y, p.stride[3], row0);
  tile::copy_out<16 * MT, D, warp_size>(y, p.stride[3][2], own, lane_id(), row_count - row0, p.d_v, p.wide & 8);
}

}  // namespace baracuda
