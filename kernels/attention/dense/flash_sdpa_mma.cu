// flash_sdpa_mma    y[i] = sum_j softmax_j(s[i,j]) v[j];   lse[i] = log sum_j exp(s[i,j]);   s = scale q[i] k[j]
//   With TERMS also the terms of terms.cuh, with TERMS 2 the masks and dropout of runs.cuh; each is a branch that all
//   threads take alike.
//
// A block has a tile of queries of one head; q, k and v come to swizzled shared memory by cp.async, and both products
// are mma.sync m16n8k16. A warp owns 16 MT rows of the tile: scores and outputs stay in its registers, and a score
// tile, rounded to T, is already the A operand of the second product. STAGES 1 has one tile of keys and one of values,
// each loaded while the other is multiplied; STAGES 2 has two of each and loads a whole tile ahead, with one barrier a
// tile. Tiles of keys that no query of the block sees are skipped. The order of every sum is fixed by (element, D) and
// by where the tiles start, so neither the batch nor alignment changes a bit.
#include "attention/flash_mma.cuh"
#include <baracuda/opaque.cuh>
#include "attention/block_pattern.cuh"
#include "attention/paged.cuh"
#include "attention/runs.cuh"

namespace baracuda {
namespace attention {

// Turns a warp's scores of the tile at k0 into weights, as elements of T. cut: the window hides some of them. careful:
// from differences of scores.
template <int TERMS, class Rows, class Found, class Terms>
BARACUDA_D void make_weights(Rows& rows, Found& found, const Terms& terms, float scale_log2, int query0, int k0,
                             const TileWindow& window, bool cut, bool careful) {
  if constexpr (TERMS == 1) {
    if (!careful) rows.template add_apart<true>(terms, query0, k0);
    else rows.add(terms, query0, k0);
  }
  if constexpr (TERMS == 2) rows.add(terms, query0, k0);
  if constexpr (TERMS == 2) rows.add_mask(terms, query0, k0, careful);
  if (cut) rows.mask(window.left, window.from, window.past);
  if (careful) rows.template weigh<Scores::exact>(scale_log2);
  else rows.template weigh<TERMS == 1 ? Scores::apart : Scores::plain>(scale_log2);
  if constexpr (TERMS == 2) {
    rows.sift(found, terms, query0, k0);
    rows.drop(found, terms);
  }
  rows.rescale();
  rows.pack();
}

}  // namespace attention

// WIDE: every row of q, k, v and y starts 16-byte aligned and is whole 16-byte pieces; with TERMS 2 p says so.
template <class T, int D, int WARPS, int MT, int KEYS, int STAGES, bool WIDE, class Where, int TERMS, class P>
BARACUDA_D void flash_sdpa_mma(const P& p) {
  using namespace attention;
  constexpr int THREADS = WARPS * warp_size, ROWS = WARPS * MT * 16, TILE = KEYS * D;
  constexpr int DV = min(D, 256), VALUES = KEYS * DV;  // past 256 columns blockIdx.y selects 256 columns of v
  using Order = conditional<TERMS == 2, tile::Runs<KEYS>, tile::InPlace>;
  // one kernel for aligned and unaligned rows where masks dominate the time
  const bool wide = TERMS == 2 ? p.wide == 0b1111 : WIDE;
  BARACUDA_DYNAMIC_SMEM(T, queries);       // [ROWS][D], at the end the outputs
  T* const keys = queries + ROWS * D;      // [STAGES][KEYS][D]
  T* const values = keys + STAGES * TILE;  // [STAGES][KEYS][DV]
  const int col0 = D > DV ? static_cast<int>(blockIdx.y) * DV : 0;

  const Work work = Where::template find<ROWS>(p);
  if (Where::surplus && work.query_len == 0) return;
  const T* const q = work.template queries<T>(p.q, p.stride[0]);
  // Looking pages up ahead takes 64 bytes a key; some devices have no more than 99 KB.
  constexpr int AHEAD = 2 * (ROWS * D + STAGES * (TILE + VALUES)) + 64 * KEYS <= 99 * 1024 ? KEYS : 0;
  using Source = typename Where::template Keys<P, AHEAD>;
  Source source(p, work);
  const auto k = source.template keys<T>(), v = source.template values<T>().columns(col0);
  const int row_count = inside<ROWS>(work.query_len, work.first);
  const int row0 = static_cast<int>(threadIdx.x) / warp_size * MT * 16, query0 = static_cast<int>(work.first) + row0;

  const Span<ROWS> span(p, work);
  // end of the keys that this warp sees, and that the block sees
  const int own_end = span.end(min(row_count, row0 + 16 * MT)), last = span.end(row_count);
  conditional<TERMS == 2, RunTerms<P>, TermsOf<TERMS, float, true, P>> terms(p, work);
  bool can_hide = span.bounded;
  if constexpr (TERMS == 2) can_hide |= terms.masked();

  using Blocks = BlocksOf<Where, P>;
  const Blocks blocks(p, work.b, work.h);
  Search search;
  int next = 0;  // the tile after this one, where some are skipped
  const auto after = [&](int k0) { return Blocks::every ? k0 + KEYS : next; };
  const auto visit = [&](int k0) {  // the first tile from k0 on that is not skipped; `last` or more where there is none
    if constexpr (Blocks::every) return k0;
    else return static_cast<int>(blocks.template visit<KEYS, false>(search, work.first, ROWS, k0, last));
  };

  // Copy the queries and the first tile.
  KeyTiles<T, D, DV, KEYS, STAGES, THREADS, Order, Source, decltype(source.template keys<T>()), AllWide> tiles{
      source, k, v, keys, values, span.key_len, last, p.d_k, p.d_v - col0, {wide}};
  tile::copy<ROWS, D, THREADS>(queries, q, p.stride[0][2], row_count, p.d_k, wide);
  int k0 = visit(span.template first<KEYS>());
  const bool none = k0 >= last;
  source.template begin<KEYS>(k0, [] { __syncthreads(); });
  tiles.load_first(k0);
  cp_async_commit();
  T* const own = queries + row0 * D;
  sign_queries<T, 16 * MT * D>(own, p.sign);

  const tile::Reader<D, false> query(own);
  const tile::Reader<DV, false> value(values);
  const tile::Reader<D, true> key(keys);
  Rows<T, DV, MT, KEYS, TERMS == 2> rows;
  typename decltype(rows)::Found found;
  if constexpr (TERMS != 0) rows.begin_with(terms);
  // Whether all is computed again with care, because a result was suspicious: weights by differences of scores, and
  // with TERMS 2 a search for infinite and NaN values, which other TERMS always make.
  bool careful = false;
  const auto nonfinite = [&] {
    return (TERMS != 2 || careful) && can_hide && tiles.has_nonfinite(tiles.tile_of_values());
  };
  for (;;) {
#pragma unroll 1
    for (; k0 < own_end; k0 = after(k0), tiles.advance()) {
      if (!Blocks::every) next = visit(k0 + KEYS);
      const TileWindow window(span, k0, row0);
      tiles.begin(k0, after(k0));
      blocks.settle(terms, work.first, ROWS, k0, KEYS);
      score<T, D, MT, KEYS>(rows.scores, query, key, tiles.keys_at());
      tiles.middle(after(k0));
      const bool limited = span.template cuts<KEYS>(k0);
      bool cut = limited;
      if constexpr (TERMS == 2) cut |= terms.masked();
      make_weights<TERMS>(rows, found, terms, terms.c, query0, k0, window, limited, careful);
      if (cut && nonfinite()) {  // 0 times infinity is NaN, but a masked value adds nothing
        rows.template add_nonfinite<tile::Rows<DV>>(tiles.tile_of_values(), window.left, [&](int row, int key) {
          if constexpr (TERMS == 2) return window.sees(row, key) && !terms.hides(query0 + row, k0 + key);
          else return window.sees(row, key);
        });
        tiles.clear_nonfinite(tiles.tile_of_values());
      }
      multiply<T, DV, MT, KEYS>(rows.acc, rows.weights, value, tiles.values_at());
    }
#pragma unroll 1
    for (; k0 < last; k0 = after(k0), tiles.advance()) {  // tiles that only later warps see
      if (!Blocks::every) next = visit(k0 + KEYS);
      tiles.begin(k0, after(k0));
      tiles.middle(after(k0));
      blocks.settle(terms, work.first, ROWS, k0, KEYS);
      if (nonfinite()) tiles.clear_nonfinite(tiles.tile_of_values());
    }
    if (careful || !__syncthreads_or(TERMS == 2 ? rows.suspicious() : rows.lost_base())) break;

    // Again, with care.
    careful = true;
    search = {};
    k0 = visit(forgotten(span.template first<KEYS>()));  // recomputed, or the compiler hoists the first tile's dropout
    tiles.stage = 0;
    rows.clear();
    if constexpr (TERMS != 0) rows.begin_with(terms, true);
    source.template begin<KEYS>(k0, [] { __syncthreads(); });
    tiles.load_first(k0);
    cp_async_commit();
  }

  // Store the outputs, by way of the warp's queries.
  cp_async_wait<0>();
  if (none) __syncthreads();  // other threads' copies of q must not meet the outputs
  float* const lse = p.lse == nullptr || col0 != 0 ? nullptr : static_cast<float*>(p.lse) + work.stat + row0;
  const float unit = careful ? terms.natural : ln_2<float>;
  rows.template finish<tile::Rows<DV>>(own, 0, lse, row_count - row0, terms.again, unit);
  __syncwarp();
  T* const y = work.template outputs<T>(p.y, p.stride[3], row0) + col0;
  tile::copy_out<16 * MT, DV, warp_size>(y, p.stride[3][2], own, lane_id(), row_count - row0, p.d_v - col0, wide);
}

}  // namespace baracuda
