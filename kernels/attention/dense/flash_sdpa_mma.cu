// flash_sdpa_mma    y[i] = sum_j softmax_j(s[i,j]) v[j];   lse[i] = log sum_j exp(s[i,j]);   s = scale q[i] k[j] With
//   TERMS also the terms of terms.cuh, with TERMS 2 the masks and dropout of runs.cuh; each is a branch that all
//   threads take alike.
//
// A block has a tile of queries of one head; q, k and v come to swizzled shared memory by cp.async, and both products
// are mma.sync m16n8k16. A warp owns 16 MT rows of the tile: scores and outputs stay in its registers, and a score
// tile, rounded to T, is already the A operand of the second product. STAGES 1 has one tile of keys and one of values,
// each loaded while the other is multiplied; STAGES 2 has two of each and loads a whole tile ahead, with one barrier a
// tile. Tiles of keys that no query of the block sees are skipped. The order of every sum is fixed by (element, D) and
// by where the tiles start, so neither the batch nor alignment changes a bit.
#include "attention/flash.cuh"
#include <baracuda/opaque.cuh>
#include "attention/paged.cuh"
#include "attention/runs.cuh"

namespace baracuda {
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
  typename Where::template Keys<P, AHEAD> source(p, work);
  const auto k = source.template keys<T>(), v = source.template values<T>().columns(col0);
  const int rows = inside<ROWS>(work.query_len, work.first), row0 = static_cast<int>(threadIdx.x) / warp_size * MT * 16;
  const int i0 = static_cast<int>(work.first) + row0;

  const Span<ROWS> span(p, work);
  const int key_len = span.key_len;
  // end of the keys that this warp sees, and that the block sees
  const int own = span.end(min(rows, row0 + 16 * MT)), last = span.end(rows);
  const conditional<TERMS == 2, RunTerms<P>, TermsOf<TERMS, float, true, P>> terms(p, work);
  const float c = terms.c;
  bool can_hide = span.bounded;
  if constexpr (TERMS == 2) can_hide |= terms.masked();

  const auto load_keys = [&](int k0, int stage) {
    tile::copy<KEYS, D, THREADS, Order>(keys + stage * TILE, k.from(k0), key_len - k0, p.d_k, wide);
  };
  const auto load_values = [&](int k0, int stage) {
    tile::copy<KEYS, DV, THREADS, Order>(values + stage * VALUES, v.from(k0), key_len - k0, p.d_v - col0, wide);
  };
  tile::copy<ROWS, D, THREADS>(queries, q, p.stride[0][2], rows, p.d_k, wide);
  int k0 = span.template first<KEYS>();
  const bool none = k0 >= last;
  source.template begin<KEYS>(k0, [] { __syncthreads(); });
  load_keys(k0, 0);
  if (STAGES == 2) load_values(k0, 0);
  cp_async_commit();

  T* const mine = queries + row0 * D;
  if (p.sign != 1.0) {
    cp_async_wait<0>();
    __syncthreads();
    for (int n = lane_id(); n < 16 * MT * D; n += warp_size) mine[n] = from_acc<T>(to_acc(mine[n]) * float(p.sign));
    __syncwarp();
  }
  const tile::Reader<D, false> query(mine);
  const tile::Reader<DV, false> value(values);
  const tile::Reader<D, true> key(keys);
  Rows<T, DV, MT, KEYS, TERMS == 2> r;
  typename decltype(r)::Found found;
  if constexpr (TERMS != 0) r.begin_with(terms);
  // Whether all is computed again with care, because a result was suspicious: weights by differences of scores, and
  // with TERMS 2 a search for infinite and NaN values, which other TERMS always make.
  bool careful = false;

  // Steps of the pipeline for a tile of keys: `begin` before the scores, `middle` before the values are read.
  int stage = 0;
  const auto begin = [&](int k0) {
    cp_async_wait<0>();
    __syncthreads();  // this tile is loaded, and all have read the one before
    source.template step<KEYS>(k0);
    if (STAGES == 1) {
      load_values(k0, 0);
    } else if (k0 + KEYS < last) {
      load_keys(k0 + KEYS, stage ^ 1);
      load_values(k0 + KEYS, stage ^ 1);
    }
    cp_async_commit();
  };
  const auto middle = [&](int k0) {
    if (STAGES == 2) return;
    cp_async_wait<0>();
    __syncthreads();  // the values are loaded, and all have read the keys
    if (k0 + KEYS < last) load_keys(k0 + KEYS, 0);
    cp_async_commit();
  };
  const auto nonfinite = [&] {
    return (TERMS != 2 || careful) && can_hide && has_nonfinite<VALUES / 2, THREADS>(values + stage * VALUES);
  };
  const auto clear = [&] {
    __syncthreads();
    clear_nonfinite<VALUES / 2, THREADS>(values + stage * VALUES);
    __syncthreads();
  };

  for (;;) {
#pragma unroll 1
    for (; k0 < own; k0 += KEYS, stage ^= STAGES - 1) {
      const u32 at = stage * TILE * static_cast<u32>(sizeof(T)),
                value_at = stage * VALUES * static_cast<u32>(sizeof(T));
      const int left = key_len - k0, from = span.low - k0 + row0, past = span.high - k0 + row0;
      begin(k0);
      score<T, D, MT, KEYS>(r.scores, query, key, at);
      middle(k0);
      bool cut = span.template cuts<KEYS>(k0);
      if constexpr (TERMS == 1) {
        if (!careful) r.template add_apart<true>(terms, i0, k0);
        else r.add(terms, i0, k0);
      }
      if constexpr (TERMS == 2) r.add(terms, i0, k0);
      if constexpr (TERMS == 2) r.add_mask(terms, i0, k0, careful);
      if (cut) r.mask(left, from, past);
      if constexpr (TERMS == 2) cut |= terms.masked();
      if (careful) r.template weigh<Scores::exact>(c);
      else r.template weigh<TERMS == 1 ? Scores::apart : Scores::plain>(c);
      if constexpr (TERMS == 2) {
        r.sift(found, terms, i0, k0);
        r.drop(found, terms);
      }
      r.rescale();
      r.pack();
      if (cut && nonfinite()) {  // 0 times infinity is NaN, but a masked value adds nothing
        r.template add_nonfinite<tile::Rows<DV>>(values + stage * VALUES, left, [&](int row, int key) {
          if constexpr (TERMS == 2) return key >= from + row && key < past + row && !terms.hides(i0 + row, k0 + key);
          else return key >= from + row && key < past + row;
        });
        clear();
      }
      multiply<T, DV, MT, KEYS>(r.acc, r.weights, value, value_at);
    }
#pragma unroll 1
    for (; k0 < last; k0 += KEYS, stage ^= STAGES - 1) {  // tiles that only later warps see
      begin(k0);
      middle(k0);
      if (nonfinite()) clear();
    }
    if (careful || !__syncthreads_or(TERMS == 2 ? r.suspicious() : r.lost_base())) break;
    careful = true;
    k0 = forgotten(span.template first<KEYS>());  // recomputed, or the compiler hoists the first tile's dropout
    stage = 0;
    r.clear();
    if constexpr (TERMS != 0) r.begin_with(terms, true);
    source.template begin<KEYS>(k0, [] { __syncthreads(); });
    load_keys(k0, 0);
    if (STAGES == 2) load_values(k0, 0);
    cp_async_commit();
  }

  cp_async_wait<0>();
  if (none) __syncthreads();  // other threads' copies of q must not meet the outputs
  float* const lse = p.lse == nullptr || col0 != 0 ? nullptr : static_cast<float*>(p.lse) + work.stat + row0;
  const float unit = careful ? terms.natural : ln_2<float>;
  r.template finish<tile::Rows<DV>>(mine, 0, lse, rows - row0, terms.again, unit);
  __syncwarp();
  T* const y = work.template outputs<T>(p.y, p.stride[3], row0) + col0;
  tile::copy_out<16 * MT, DV, warp_size>(y, p.stride[3][2], mine, lane_id(), rows - row0, p.d_v - col0, wide);
}

}  // namespace baracuda
