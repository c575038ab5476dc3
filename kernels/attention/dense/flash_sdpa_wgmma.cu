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
#include "attention/paged.cuh"
#include "attention/runs.cuh"

namespace baracuda {

// WIDE: every row of q, k, v and y starts 16-byte aligned and is whole 16-byte pieces; with TERMS 2 p says so.
template <class T, int D, int GROUPS, int KEYS, bool WIDE, class Where, int TERMS, class P>
BARACUDA_D void flash_sdpa_wgmma(const P& p) {
  using namespace attention;
  constexpr int THREADS = GROUPS * 128, ROWS = GROUPS * 64, TILE = KEYS * D;
  // queries in registers: from shared memory they cost as much as the keys
  constexpr bool QUERIES_IN_REGISTERS = D <= 128 && KEYS == 64;
  static_assert(TERMS == 2 || D == 64, "others are flash_sdpa_pipelined's");
  using InTile = tile::Panels<KEYS>;
  using Order = conditional<TERMS == 2, tile::Runs<KEYS>, tile::InPlace>;
  // one kernel for aligned and unaligned rows where masks dominate the time
  const bool wide = TERMS == 2 ? p.wide == 0b1111 : WIDE;
  BARACUDA_DYNAMIC_SMEM(T, shared);
  T* const queries = shared + (1024 - smem_address(shared) % 1024) % 1024 / sizeof(T);  // panels
  T* const keys = queries + ROWS * D;                                                   // [2] tiles of panels
  T* const values = keys + 2 * TILE;                                                    // [2] tiles of panels

  const Work work = Where::template find<ROWS>(p, blockIdx.x, static_cast<u32>(p.heads));
  if (Where::surplus && work.query_len == 0) return;
  const T* const q = work.template queries<T>(p.q, p.stride[0]);
  using Source = typename Where::template Keys<P, KEYS>;
  Source source(p, work);
  const auto k = source.template keys<T>(), v = source.template values<T>();
  const int warp = static_cast<int>(threadIdx.x) / warp_size, row0 = warp * 16;
  const int rows = inside<ROWS>(work.query_len, work.first), i0 = static_cast<int>(work.first) + row0;
  const Span<ROWS> span(p, work);
  const int key_len = span.key_len, first = span.template first<KEYS>(), last = span.end(rows);
  const int start = span.template start<KEYS>(rows);
  const conditional<TERMS == 2, RunTerms<P>, TermsOf<TERMS, float, true, P>> terms(p, work);
  const float c = TERMS == 0 ? p.unit_log2 : terms.c;

  const auto load_keys = [&](int k0, int slot, bool wide) {
    tile::copy_panels<KEYS, D, THREADS, Order>(keys + slot * TILE, k.from(k0), key_len - k0, p.d_k, wide);
  };
  const auto load_values = [&](int k0, int slot, bool wide) {
    tile::copy_panels<KEYS, D, THREADS, Order>(values + slot * TILE, v.from(k0), key_len - k0, p.d_v, wide);
  };
  const auto arrive = [&] {  // all loads are complete, and all have read what is loaded over next
    cp_async_wait<0>();
    wgmma_publish();
    __syncthreads();
  };
  const auto up = [](const auto& rows, int cols) { return tile::panels_up<KEYS, D, THREADS, WIDE>(rows, cols); };
  auto next_keys = up(k.from(start), p.d_k);
  auto next_values = up(v.from(start), p.d_v);
  source.template begin<-KEYS>(start, [] { __syncthreads(); });
  tile::copy_panels<ROWS, D, THREADS>(queries, q, p.stride[0][2], rows, p.d_k, wide);
  if constexpr (TERMS != 2) next_keys.copy(keys, key_len - start);
  cp_async_commit();
  if (p.sign != 1.0) {
    cp_async_wait<0>();
    __syncthreads();
    for (int n = threadIdx.x; n < ROWS * D; n += THREADS) queries[n] = from_acc<T>(to_acc(queries[n]) * float(p.sign));
  }

  Rows<T, D, 1, KEYS, TERMS == 2> r;
  typename decltype(r)::Found found;
  if constexpr (TERMS != 0) r.begin_with(terms);
  const GroupProducts<T, D, ROWS, KEYS> products(queries, keys, values, TERMS == 1 ? warp / 4 : warpgroup());
  u32 held[QUERIES_IN_REGISTERS ? D / 16 : 1][4];  // the warp's queries
  const auto start_scores = [&](int slot) {
    if constexpr (QUERIES_IN_REGISTERS) {
      products.start_scores(r.scores[0], held, slot);
    } else {
      auto now = products;
      now.query = forgotten(now.query);  // or the descriptor of every d is kept, in local memory
      now.start_scores(r.scores[0], 0, slot);
    }
  };
  const auto start_outputs = [&](int slot) { products.start_outputs(r.acc[0], r.weights[0], slot); };
  const auto read_queries = [&] {
    if constexpr (QUERIES_IN_REGISTERS) {
#pragma unroll
      for (int d = 0; d < D; d += 16) {
        tile::Reader<64, false>(queries + d / 64 * (ROWS * 64) + row0 * 64).read(held[d / 16], 0, d % 64);
      }
    }
  };
  const auto cut = [&](int k0) {
    if (span.template cuts<KEYS>(k0)) r.mask(key_len - k0, span.low - k0 + row0, span.high - k0 + row0);
  };
  bool careful = false;  // all is computed again with care, because a result was suspicious or lost its base
  const auto fix_nonfinite = [&](int k0, int slot) {  // 0 times infinity is NaN, but a masked value adds nothing
    if (TERMS == 2 ? !careful : !span.bounded || !span.template cuts<KEYS>(k0)) return;
    if (!has_nonfinite<TILE / 2, THREADS>(values + slot * TILE)) return;
    r.template add_nonfinite<InTile>(values + slot * TILE, key_len - k0, [&](int row, int key) {
      const bool seen = key >= span.low - k0 + row0 + row && key < span.high - k0 + row0 + row;
      if constexpr (TERMS == 2) return seen && !terms.hides(i0 + row, k0 + key);
      else return seen;
    });
    __syncthreads();
    clear_nonfinite<TILE / 2, THREADS>(values + slot * TILE);
    wgmma_publish();
    __syncthreads();
  };

  // Returns when the scores are done, the outputs of the tile before are in flight, and beside() is done.
  const auto start_both = [&](int slot, const auto& beside) {
    hold(r.weights[0]);
    hold(r.acc[0]);
    wgmma_fence();
    start_scores(slot);
    start_outputs(slot ^ 1);
    beside();
    wgmma_wait<1>();
    hold(r.scores[0]);
    hold(held);
  };
  const auto end_outputs = [&] {  // behind a branch: the assembler of 13.0 moves a wait up to the last one before it
    hold(r.scores[0]);
    if (r.moved) {
      wgmma_wait<0>();
      hold(r.acc[0]);
      r.rescale();
    }
    wgmma_wait<0>();
    hold(r.acc[0]);
    hold(r.weights[0]);
    r.pack();
  };
  const auto add_outputs = [&](int slot) {
    hold(r.weights[0]);
    hold(r.acc[0]);
    wgmma_fence();
    start_outputs(slot);
    wgmma_wait<0>();
    hold(r.acc[0]);
  };

  const auto walk = [&](auto kind) {
    using K = decltype(kind);
    const auto weigh = [&](int k0) {
      if constexpr (K::sloped) r.template add_apart<K::capped>(terms, i0, k0);
      cut(k0);
      if constexpr (K::sloped) r.template weigh_lazily<Scores::apart>(c);
      else if constexpr (K::capped) r.weigh_capped(terms);
      else r.weigh_lazily(c);
    };
    arrive();
    source.template step<-KEYS>(start);
    next_values.copy(values, key_len - start);
    if (start > first) next_keys.copy(keys + TILE);
    cp_async_commit();
    read_queries();
    wgmma_fence();
    start_scores(0);
    wgmma_wait<0>();
    hold(r.scores[0]);
    weigh(start);
    r.pack();
    int k0 = start - KEYS, slot = 1;
#pragma unroll 1
    for (; k0 >= first; k0 -= KEYS, slot ^= 1) {
      // Loads go first, as they take longest; but after the start of the products where the source looks rows up (both
      // measured: docs/design/attention-forward.md).
      const auto load = [&] {
        next_values.copy(values + slot * TILE);
        if (k0 > first) next_keys.copy(keys + (slot ^ 1) * TILE);
        source.template step<-KEYS>(k0);
        cp_async_commit();
      };
      arrive();
      if (!Source::looks_up) load();
      fix_nonfinite(k0 + KEYS, slot ^ 1);
      start_both(slot, [&] {
        if (Source::looks_up) load();
      });
      weigh(k0);
      end_outputs();
    }
    arrive();
    fix_nonfinite(first, slot ^ 1);
    add_outputs(slot ^ 1);
  };
  // TERMS 2: a loop for each of the common kinds, as code that is jumped over costs time too. A sweep begins with
  // weights of 0 for a tile of zeros, so that the first tile is like the others. It does not search values for infinite
  // and NaN ones.
  struct Dropout {};   // dropout alone
  struct AnyTerms {};  // any combination; a kernel for a mask alone is named by its element M
  const auto sweep = [&](auto kind, int end) {
    using M = decltype(kind);
    constexpr bool DROPS = is_same<M, Dropout>, ANY = is_same<M, AnyTerms>, DENSE = !DROPS && !ANY;
    int k0 = (end - 1) / KEYS * KEYS, slot = 0;
    load_keys(k0, 0, true);
    cp_async_commit();
    uint4* const none = reinterpret_cast<uint4*>(values + TILE);
    for (int n = threadIdx.x; n < TILE / 8; n += THREADS) none[n] = uint4{0, 0, 0, 0};
    for (u32(&four)[4] : r.weights[0]) four[0] = four[1] = four[2] = four[3] = 0;
    arrive();
    read_queries();
#pragma unroll 1
    for (; k0 >= first; k0 -= KEYS, slot ^= 1) {
      arrive();
      load_values(k0, slot, true);
      if (k0 > first) load_keys(k0 - KEYS, slot ^ 1, true);
      cp_async_commit();
      if constexpr (DENSE) r.template fetch<M>(found, terms, i0, k0);
      start_both(slot, [] {});
      if constexpr (ANY) {
        r.add(terms, i0, k0);
        r.add_mask(terms, i0, k0, false);
      }
      if constexpr (DENSE) r.template add<M>(found, terms, i0, k0);
      cut(k0);
      r.weigh_lazily(c);
      if constexpr (DROPS) r.drop(terms, i0, k0);
      if constexpr (ANY) {
        r.sift(found, terms, i0, k0);
        r.drop(found, terms);
      }
      end_outputs();
    }
    arrive();
    add_outputs(slot ^ 1);
  };
  if constexpr (TERMS == 2) {
    const bool fast = wide && first < last, alone = !terms.capped() && !terms.sloped();
    const bool dense = alone && terms.masked() && terms.dense && !terms.drops();
    // end of the keys that a sweep takes in whole tiles
    const int end = dense ? min(last, key_len / KEYS * KEYS) : last;
    int low = first >= last ? start + KEYS : !fast ? first : dense ? max(first, end) : last;
    for (;; low = first, careful = true) {
#pragma unroll 1
      for (int k0 = start; k0 >= low; k0 -= KEYS) {  // tiles that no sweep takes
        __syncthreads();
        load_keys(k0, 0, wide);
        load_values(k0, 0, wide);
        cp_async_commit();
        arrive();
        read_queries();
        wgmma_fence();
        start_scores(0);
        wgmma_wait<0>();
        hold(r.scores[0]);
        r.add(terms, i0, k0);
        r.add_mask(terms, i0, k0, careful);
        cut(k0);
        if (careful) r.template weigh<Scores::exact>(c);
        else r.weigh(c);
        r.sift(found, terms, i0, k0);
        r.drop(found, terms);
        r.rescale();
        r.pack();
        fix_nonfinite(k0, 0);
        add_outputs(0);
      }
      if (careful) break;
      __syncthreads();
      if (fast && first < end) {
        if (alone && !terms.masked() && terms.whole_blocks()) sweep(Dropout{}, end);
        else if (dense && p.mask_kind == 0) sweep(u8{}, end);
        else if (dense && p.mask_kind == (is_same<T, f16> ? 1 : 2)) sweep(T{}, end);
        else if (dense && p.mask_kind == 3) sweep(float{}, end);
        else sweep(AnyTerms{}, end);
      }
      if (!__syncthreads_or(r.suspicious())) break;
      r.clear();
      r.begin_with(terms, true);
    }
  } else if (first < last) {
    with_kind_of<TERMS, WIDE>(p, walk);
    careful = __syncthreads_or(r.lost_base());
    if (careful) {  // again, one tile after the other
      const typename Where::template Keys<P, 0> any(p, work);
      r.clear();
      if constexpr (TERMS != 0) r.begin_with(terms, true);
#pragma unroll 1
      for (int k0 = start; k0 >= first; k0 -= KEYS) {
        tile::copy_panels<KEYS, D, THREADS>(keys, any.template keys<T>().from(k0), key_len - k0, p.d_k, WIDE);
        tile::copy_panels<KEYS, D, THREADS>(values, any.template values<T>().from(k0), key_len - k0, p.d_v, WIDE);
        cp_async_commit();
        arrive();
        wgmma_fence();
        start_scores(0);
        wgmma_wait<0>();
        hold(r.scores[0]);
        if constexpr (TERMS != 0) r.add(terms, i0, k0);
        cut(k0);
        r.template weigh<Scores::exact>(c);
        r.rescale();
        r.pack();
        fix_nonfinite(k0, 0);
        add_outputs(0);
        __syncthreads();
      }
    }
  }
  cp_async_wait<0>();  // the copies that nobody waited for
  float* const lse = p.lse == nullptr ? nullptr : static_cast<float*>(p.lse) + work.stat + row0;
  T* const y = work.template outputs<T>(p.y, p.stride[3], row0);
  float factors[1][2];
  r.close(factors, terms.again);
  const auto put_lse = [&] { r.put_lse(lse, rows - row0, careful ? terms.natural : ln_2<float>); };
  if (wide) {
    __syncthreads();  // all have read queries and finished copying
    // recomputed here, or it takes a register early
    T* const stage = queries + forgotten(static_cast<int>(threadIdx.x)) / warp_size * (16 * 64);
    put_staged<D / 64, ROWS * 64>(stage, y, p.stride[3][2], rows - row0, p.d_v, r.acc[0], factors[0], put_lse);
  } else {
    r.put(y, p.stride[3][2], rows - row0, p.d_v, factors);
    put_lse();
  }
}

}  // namespace baracuda
