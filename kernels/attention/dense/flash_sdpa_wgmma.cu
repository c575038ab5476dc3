// flash_sdpa_wgmma    y[i] = sum_j softmax_j(s[i,j]) v[j];   lse[i] = log sum_j exp(s[i,j]);   s = scale q[i] k[j]
//   With TERMS also the terms of terms.cuh; with TERMS 2 the masks and dropout of runs.cuh too.
//
// flash_sdpa_mma on wgmma, for head_dim 64 and for masks and dropout; all else goes to flash_sdpa_pipelined. A
// warpgroup owns 64 queries of the block's tile, and the tensor cores read q, k and v from panels of 64 columns in
// shared memory. The scores of a tile are started before the product with the values of the tile before, so that its
// softmax overlaps that product. Keys and values have two stages each; the values of a tile are loaded with the keys of
// the next. Tiles are walked from the last one that a query sees to the first: the highest scores of ALiBi come first,
// and only the first tile walked may be partial. Order of sums: as in flash_sdpa_mma, fixed by (element, D) and by
// where this kernel's tiles start. Measurements: docs/design/attention-forward.md.
#include "attention/flash_wgmma.cuh"
#include <baracuda/opaque.cuh>
#include "attention/block_pattern.cuh"
#include "attention/paged.cuh"
#include "attention/runs.cuh"

namespace baracuda {
namespace attention {

// The loops of masks and dropout besides those for a mask alone, which are named by its element.
struct Dropout {};   // dropout alone
struct AnyTerms {};  // any combination

// The walk of a block's tile of queries over the keys, in phases. What has arrays is a reference, as the compiler tells
// a struct's members apart late where arrays are among them.
template <class T, int D, int GROUPS, int KEYS, bool WIDE, class Where, int TERMS, class P> struct QueryTileWalk {
  static constexpr int THREADS = GROUPS * 128, ROWS = GROUPS * 64, TILE = KEYS * D;
  // queries in registers: from shared memory they cost as much as the keys
  static constexpr bool QUERIES_IN_REGISTERS = D <= 128 && KEYS == 64;
  using InTile = tile::Panels<KEYS>;
  using Order = conditional<TERMS == 2, tile::Runs<KEYS>, tile::InPlace>;
  using Source = typename Where::template Keys<P, KEYS>;
  using SourceRows = decltype(static_cast<Source*>(nullptr)->template keys<T>());
  using Terms = conditional<TERMS == 2, RunTerms<P>, TermsOf<TERMS, float, true, P>>;
  using Registers = Rows<T, D, 1, KEYS, TERMS == 2>;
  using Found = typename Registers::Found;
  using Fragments = u32[QUERIES_IN_REGISTERS ? D / 16 : 1][4];

  const P& p;
  const Work& work;
  Source& source;
  const SourceRows &k, &v;  // rows of keys and values
  const Span<ROWS>& span;
  const BlocksOf<Where, P>& blocks;
  Terms& terms;
  const GroupProducts<T, D, ROWS, KEYS> products;
  T *const queries, *const keys, *const values;  // panels: the queries, and two stages each of keys and values
  Registers& rows;
  Found& found;
  Fragments& held;                        // the warp's queries, as fragments
  const int row_count, row0, query0;      // queries of the tile; the warp's first, in it and in the sequence
  const int key_len, first, last, start;  // the keys, and the tiles of them that some query sees
  const float scale_log2;
  const bool wide;
  bool careful = false;  // all is computed again with care, because a result was suspicious or lost its base

  // ---- copies

  BARACUDA_D void load_keys(int k0, int stage, bool wide) const {
    tile::copy_panels<KEYS, D, THREADS, Order>(keys + stage * TILE, k.from(k0), key_len - k0, p.d_k, wide);
  }
  BARACUDA_D void load_values(int k0, int stage, bool wide) const {
    tile::copy_panels<KEYS, D, THREADS, Order>(values + stage * TILE, v.from(k0), key_len - k0, p.d_v, wide);
  }
  static BARACUDA_D void arrive() {  // all loads are complete, and all have read what is loaded over next
    cp_async_wait<0>();
    wgmma_publish();
    __syncthreads();
  }
  BARACUDA_D void read_queries() const {
    if constexpr (QUERIES_IN_REGISTERS) {
#pragma unroll
      for (int d = 0; d < D; d += 16) {
        tile::Reader<64, false>(queries + d / 64 * (ROWS * 64) + row0 * 64).read(held[d / 16], 0, d % 64);
      }
    }
  }

  // ---- products

  BARACUDA_D void start_scores(int stage) const {
    if constexpr (QUERIES_IN_REGISTERS) {
      products.start_scores(rows.scores[0], held, stage);
    } else {
      auto now = products;
      now.query = forgotten(now.query);  // or the descriptor of every d is kept, in local memory
      now.start_scores(rows.scores[0], 0, stage);
    }
  }
  BARACUDA_D void start_outputs(int stage) const { products.start_outputs(rows.acc[0], rows.weights[0], stage); }
  BARACUDA_D void make_scores(int stage) const {
    wgmma_fence();
    start_scores(stage);
    wgmma_wait<0>();
    hold(rows.scores[0]);
  }
  BARACUDA_D void add_outputs(int stage) const {
    hold(rows.weights[0]);
    hold(rows.acc[0]);
    wgmma_fence();
    start_outputs(stage);
    wgmma_wait<0>();
    hold(rows.acc[0]);
  }
  // Returns when the scores are done, the outputs of the tile before are in flight, and beside() is done.
  template <class Beside> BARACUDA_D void start_both(int stage, const Beside& beside) const {
    hold(rows.weights[0]);
    hold(rows.acc[0]);
    wgmma_fence();
    start_scores(stage);
    start_outputs(stage ^ 1);
    beside();
    wgmma_wait<1>();
    hold(rows.scores[0]);
    hold(held);
  }
  // Waits for the outputs, and rescales the accumulator.
  BARACUDA_D void end_outputs() const {  // behind a branch, as the assembler of 13.0 moves waits up
    hold(rows.scores[0]);
    if (rows.moved) {
      wgmma_wait<0>();
      hold(rows.acc[0]);
      rows.rescale();
    }
    wgmma_wait<0>();
    hold(rows.acc[0]);
    hold(rows.weights[0]);
    rows.pack();
  }

  // ---- keys that are not seen

  BARACUDA_D void cut(int k0) const {
    if (span.template cuts<KEYS>(k0)) rows.mask(key_len - k0, span.low - k0 + row0, span.high - k0 + row0);
  }
  BARACUDA_D void fix_nonfinite(int k0, int stage) const {  // 0 times infinity is NaN, but a masked value adds nothing
    if (TERMS == 2 ? !careful : !span.bounded || !span.template cuts<KEYS>(k0)) return;
    if (!has_nonfinite<TILE / 2, THREADS>(values + stage * TILE)) return;
    rows.template add_nonfinite<InTile>(values + stage * TILE, key_len - k0, [&](int row, int key) {
      const bool seen = key >= span.low - k0 + row0 + row && key < span.high - k0 + row0 + row;
      if constexpr (TERMS == 2) return seen && !terms.hides(query0 + row, k0 + key);
      else return seen;
    });
    __syncthreads();
    clear_nonfinite<TILE / 2, THREADS>(values + stage * TILE);
    wgmma_publish();
    __syncthreads();
  }

  // ---- walks without masks and dropout

  // The keys of the first tile are in flight; next_keys and next_values copy what follows.
  template <class Kind, class NextKeys, class NextValues>
  BARACUDA_D void walk(NextKeys& next_keys, NextValues& next_values) {
    const auto softmax = [&](int k0) { online_softmax<Kind>(rows, terms, scale_log2, query0, k0, [&] { cut(k0); }); };
    // The first scores.
    arrive();
    source.template step<-KEYS>(start);
    next_values.copy(values, key_len - start);
    if (start > first) next_keys.copy(keys + TILE);
    cp_async_commit();
    read_queries();
    make_scores(0);
    softmax(start);
    rows.pack();

    int k0 = start - KEYS, stage = 1;
#pragma unroll 1
    for (; k0 >= first; k0 -= KEYS, stage ^= 1) {
      // Loads go first, as they take longest; but after the start of the products where the source looks rows up (both
      // measured: docs/design/attention-forward.md).
      const auto load = [&] {
        next_values.copy(values + stage * TILE);
        if (k0 > first) next_keys.copy(keys + (stage ^ 1) * TILE);
        source.template step<-KEYS>(k0);
        cp_async_commit();
      };
      arrive();
      if (!Source::looks_up) load();
      fix_nonfinite(k0 + KEYS, stage ^ 1);
      start_both(stage, [&] {
        if (Source::looks_up) load();
      });
      softmax(k0);
      end_outputs();
    }

    // The last outputs.
    arrive();
    fix_nonfinite(first, stage ^ 1);
    add_outputs(stage ^ 1);
  }
  // The same again, one tile after the other, with weights from differences of scores.
  BARACUDA_D void walk_with_care() {
    const typename Where::template Keys<P, 0> any(p, work);
    careful = true;
    rows.clear();
    if constexpr (TERMS != 0) rows.begin_with(terms, true);
#pragma unroll 1
    for (int k0 = start; k0 >= first; k0 -= KEYS) {
      tile::copy_panels<KEYS, D, THREADS>(keys, any.template keys<T>().from(k0), key_len - k0, p.d_k, WIDE);
      tile::copy_panels<KEYS, D, THREADS>(values, any.template values<T>().from(k0), key_len - k0, p.d_v, WIDE);
      cp_async_commit();
      arrive();
      make_scores(0);
      if constexpr (TERMS != 0) rows.add(terms, query0, k0);
      cut(k0);
      rows.template weigh<Scores::exact>(scale_log2);
      rows.rescale();
      rows.pack();
      fix_nonfinite(k0, 0);
      add_outputs(0);
      __syncthreads();
    }
  }

  // ---- walks with masks and dropout

  // The tile at k0, or the next one below that is not skipped; below `first` where there is none.
  BARACUDA_D int visit(Search& search, int k0) const {
    return blocks.template visit_down<KEYS>(search, work.first, ROWS, k0, first);
  }
  // A loop for each of the common kinds, as code that is jumped over costs time too. A sweep begins with weights of 0
  // for a tile of zeros, so that the first tile is like the others. It does not search for infinite and NaN values.
  template <class M> BARACUDA_D void sweep(int end) const {
    constexpr bool DROPS = is_same<M, Dropout>, ANY = is_same<M, AnyTerms>, DENSE = !DROPS && !ANY;
    constexpr bool EVERY = BlocksOf<Where, P>::every;
    Search search;
    int k0 = visit(search, (end - 1) / KEYS * KEYS), next = 0, stage = 0;
    const auto below = [&](int k0) { return EVERY ? k0 - KEYS : next; };
    if (!EVERY && k0 < first) return;
    load_keys(k0, 0, true);
    cp_async_commit();
    uint4* const none = reinterpret_cast<uint4*>(values + TILE);
    for (int n = threadIdx.x; n < TILE / 8; n += THREADS) none[n] = uint4{0, 0, 0, 0};
    for (u32(&four)[4] : rows.weights[0]) four[0] = four[1] = four[2] = four[3] = 0;
    arrive();
    read_queries();
#pragma unroll 1
    for (; k0 >= first; k0 = below(k0), stage ^= 1) {
      if (!EVERY) next = visit(search, k0 - KEYS);
      arrive();
      load_values(k0, stage, true);
      if (EVERY ? k0 > first : next >= first) load_keys(below(k0), stage ^ 1, true);
      cp_async_commit();
      blocks.settle(terms, work.first, ROWS, k0, KEYS);
      if constexpr (DENSE) rows.template fetch<M>(found, terms, query0, k0);
      start_both(stage, [] {});
      // Add the mask, and make weights of the scores.
      if constexpr (ANY) {
        rows.add(terms, query0, k0);
        rows.add_mask(terms, query0, k0, false);
      }
      if constexpr (DENSE) rows.template add<M>(found, terms, query0, k0);
      cut(k0);
      rows.weigh_lazily(scale_log2);
      // Drop weights.
      if constexpr (DROPS) rows.drop(terms, query0, k0);
      if constexpr (ANY) {
        rows.sift(found, terms, query0, k0);
        rows.drop(found, terms);
      }
      end_outputs();
    }
    arrive();
    add_outputs(stage ^ 1);
  }
  // One tile by itself, with any terms; its copies are waited for.
  BARACUDA_D void take_tile(int k0) const {
    __syncthreads();
    load_keys(k0, 0, wide);
    load_values(k0, 0, wide);
    cp_async_commit();
    arrive();
    read_queries();
    make_scores(0);
    blocks.settle(terms, work.first, ROWS, k0, KEYS);
    rows.add(terms, query0, k0);
    rows.add_mask(terms, query0, k0, careful);
    cut(k0);
    if (careful) rows.template weigh<Scores::exact>(scale_log2);
    else rows.weigh_lazily(scale_log2);  // as a sweep does, so that rows have the same bits however they are aligned
    rows.sift(found, terms, query0, k0);
    rows.drop(found, terms);
    rows.rescale();
    rows.pack();
    fix_nonfinite(k0, 0);
    add_outputs(0);
  }
  // Tiles that no sweep takes, then a sweep; where a result is suspicious, all tiles again with care.
  BARACUDA_D void walk_masked() {
    const bool fast = wide && first < last, alone = !terms.capped() && !terms.sloped();
    const bool dense = alone && terms.masked() && terms.dense && !terms.drops();
    // end of the keys that a sweep takes in whole tiles
    const int end = dense ? min(last, key_len / KEYS * KEYS) : last;
    int low = first >= last ? start + KEYS : !fast ? first : dense ? max(first, end) : last;
    for (;; low = first, careful = true) {
      Search search;
#pragma unroll 1
      for (int k0 = visit(search, start); k0 >= low; k0 = visit(search, k0 - KEYS)) take_tile(k0);
      if (careful) break;
      __syncthreads();
      if (fast && first < end) {
        if constexpr (!Terms::common) sweep<AnyTerms>(end);
        else if (alone && !terms.masked() && terms.whole_blocks()) sweep<Dropout>(end);
        else if (dense && p.mask_kind == 0) sweep<u8>(end);
        else if (dense && p.mask_kind == (is_same<T, f16> ? 1 : 2)) sweep<T>(end);
        else if (dense && p.mask_kind == 3) sweep<float>(end);
        else sweep<AnyTerms>(end);
      }
      if (!__syncthreads_or(rows.suspicious())) break;
      rows.clear();
      rows.begin_with(terms, true);
    }
  }

  // Stores the outputs and the lse.
  BARACUDA_D void store() const {
    float* const lse = p.lse == nullptr ? nullptr : static_cast<float*>(p.lse) + work.stat + row0;
    T* const y = work.template outputs<T>(p.y, p.stride[3], row0);
    float factors[1][2];
    rows.close(factors, terms.again);
    const auto put_lse = [&] { rows.put_lse(lse, row_count - row0, careful ? terms.natural : ln_2<float>); };
    if (wide) {
      __syncthreads();  // all have read queries and finished copying
      // recomputed here, or it takes a register early
      T* const staged = queries + forgotten(static_cast<int>(threadIdx.x)) / warp_size * (16 * 64);
      put_staged<D / 64, ROWS * 64>(staged, y, p.stride[3][2], row_count - row0, p.d_v, rows.acc[0], factors[0],
                                    put_lse);
    } else {
      rows.put(y, p.stride[3][2], row_count - row0, p.d_v, factors);
      put_lse();
    }
  }
};

}  // namespace attention

// WIDE: every row of q, k, v and y starts 16-byte aligned and is whole 16-byte pieces; with TERMS 2 p says so.
template <class T, int D, int GROUPS, int KEYS, bool WIDE, class Where, int TERMS, class P>
BARACUDA_D void flash_sdpa_wgmma(const P& p) {
  using namespace attention;
  using Walk = QueryTileWalk<T, D, GROUPS, KEYS, WIDE, Where, TERMS, P>;
  constexpr int THREADS = Walk::THREADS, ROWS = Walk::ROWS, TILE = Walk::TILE;
  static_assert(TERMS == 2 || D == 64, "others are flash_sdpa_pipelined's");
  // one kernel for aligned and unaligned rows where masks dominate the time
  const bool wide = TERMS == 2 ? p.wide == 0b1111 : WIDE;
  BARACUDA_DYNAMIC_SMEM(T, shared);
  T* const queries = shared + (1024 - smem_address(shared) % 1024) % 1024 / sizeof(T);  // panels
  T* const keys = queries + ROWS * D;                                                   // [2] tiles of panels
  T* const values = keys + 2 * TILE;                                                    // [2] tiles of panels

  const Work work = Where::template find<ROWS>(p, blockIdx.x, static_cast<u32>(p.heads));
  if (Where::surplus && work.query_len == 0) return;
  const T* const q = work.template queries<T>(p.q, p.stride[0]);
  typename Walk::Source source(p, work);
  const int warp = static_cast<int>(threadIdx.x) / warp_size, row0 = warp * 16;
  const int row_count = inside<ROWS>(work.query_len, work.first);
  const Span<ROWS> span(p, work);
  const int first = span.template first<KEYS>(), last = span.end(row_count);
  const int start = span.template start<KEYS>(row_count);
  const auto k = source.template keys<T>(), v = source.template values<T>();
  typename Walk::Terms terms(p, work);
  const BlocksOf<Where, P> blocks(p, work.b, work.h);

  // Copy the queries and the first keys.
  const auto up = [&](const auto& rows, int cols) {
    return tile::panels_up<KEYS, D, THREADS, WIDE>(rows.from(start), cols);
  };
  auto next_keys = up(k, p.d_k);
  auto next_values = up(v, p.d_v);
  source.template begin<-KEYS>(start, [] { __syncthreads(); });
  tile::copy_panels<ROWS, D, THREADS>(queries, q, p.stride[0][2], row_count, p.d_k, wide);
  if constexpr (TERMS != 2) next_keys.copy(keys, span.key_len - start);
  cp_async_commit();
  if (p.sign != 1.0) {
    cp_async_wait<0>();
    __syncthreads();
    for (int n = threadIdx.x; n < ROWS * D; n += THREADS) queries[n] = from_acc<T>(to_acc(queries[n]) * float(p.sign));
  }

  // Walk over the tiles of keys.
  typename Walk::Registers rows;
  typename Walk::Found found;
  if constexpr (TERMS != 0) rows.begin_with(terms);
  typename Walk::Fragments held;
  Walk walk{p,
            work,
            source,
            k,
            v,
            span,
            blocks,
            terms,
            {queries, keys, values, TERMS == 1 ? warp / 4 : warpgroup()},
            queries,
            keys,
            values,
            rows,
            found,
            held,
            row_count,
            row0,
            static_cast<int>(work.first) + row0,
            span.key_len,
            first,
            last,
            start,
            TERMS == 0 ? p.unit_log2 : terms.c,
            wide};
  if constexpr (TERMS == 2) {
    walk.walk_masked();
  } else if (first < last) {
    with_kind_of<TERMS, WIDE>(p, [&](auto kind) { walk.template walk<decltype(kind)>(next_keys, next_values); });
    if (__syncthreads_or(rows.lost_base())) walk.walk_with_care();
  }
  cp_async_wait<0>();  // the copies that nobody waited for
  walk.store();
}

}  // namespace baracuda
