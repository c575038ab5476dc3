// flash_sdpa_pipelined    y[i] = sum_j softmax_j(s[i,j]) v[j];   lse[i] = log sum_j exp(s[i,j]);   s = scale q[i] k[j]
//   With TERMS also the soft cap, ALiBi and sinks of terms.cuh; masks and dropout go to flash_sdpa_wgmma.
//
// Schedule. A block is a producer warpgroup and two consumer warpgroups, each with 64 of the tile's 128 queries. The
// producer copies queries and, tile after tile, keys and values, each into two stages (queries past head_dim 128 into
// one), and never waits for a copy; it goes on to the block's next queries while consumers finish the last. Near the
// end of one tile of queries, one of its threads finds the next (by a ticket where tiles differ in work) and leaves it
// in shared memory with the keys that each consumer sees of it. A consumer starts the scores of a tile before the
// product with the values of the tile before, so that its softmax overlaps that product. With two stages of queries the
// first scores of the next queries overlap the last product, and outputs are stored during both. Up to head_dim 128
// consumers take turns at starting products (ping-pong), so that the softmax of one overlaps the products of the other.
// Tiles are walked from the last one that a query sees to the first: the highest scores of ALiBi come first, and only
// the first tile walked may be partial. A consumer skips tiles that none of its own queries sees.
//
// 0 times an infinite or NaN value is NaN, but a masked value must add nothing: a warp whose sums look odd, or
// overflowed, computes its rows again by walk_with_care.
//
// Order of sums: over a row's keys as in flash_sdpa_mma, fixed by (element, D) and by where this kernel's tiles start.
// Measurements: docs/design/attention-forward.md.
#include "attention/flash_wgmma.cuh"
#include "attention/paged.cuh"
#include <baracuda/pipeline.cuh>

namespace baracuda {
namespace attention {

// A tile of queries of a block, and what the 64 queries of each consumer see of the keys.
template <int GROUPS> struct Item {
  struct Part {
    int from, to;    // the keys that some query sees, from the start of a tile
    int begin, end;  // tiles within these keys are seen whole by all of them
  };
  Work work;                                         // query_len 0: there is no more
  int rows, key_len, low, high, first, last, start;  // as Span has them
  bool bounded;
  Part part[GROUPS];

  template <int KEYS, class P> BARACUDA_D void fill(const P& p, const Work& found) {
    const Span<64 * GROUPS> span(p, found);
    work = found;
    rows = inside<64 * GROUPS>(found.query_len, found.first);
    key_len = span.key_len, low = span.low, high = span.high, bounded = span.bounded;
    first = span.template first<KEYS>(), last = span.end(rows), start = span.template start<KEYS>(rows);
#pragma unroll
    for (int n = 0; n < GROUPS; ++n) {
      const Span<64> mine(found.first + 64 * n + found.shift, p.left, p.right, found.key_len);
      part[n] = {mine.template first<KEYS>(), rows > 64 * n ? mine.end(rows - 64 * n) : 0, mine.low + 63,
                 min(key_len, mine.high)};
    }
  }
};

}  // namespace attention

// WIDE: every row of q, k, v and y starts 16-byte aligned and is whole 16-byte pieces.
template <class T, int D, int KEYS, bool WIDE, class Where, int TERMS, class P>
BARACUDA_D void flash_sdpa_pipelined(const P& p) {
  using namespace attention;
  constexpr int LOADERS = 128, GROUPS = 2, WARPS = GROUPS * 4, ROWS = GROUPS * 64, TILE = KEYS * D;
  constexpr bool PING_PONG = D <= 128;
  constexpr int QUERY_STAGES = D <= 128 ? 2 : 1;  // stages of queries
  constexpr bool AHEAD = QUERY_STAGES == 2;  // whether the first scores of the next queries overlap the last outputs
  constexpr int LOOK = AHEAD ? 2 * KEYS : KEYS;  // distance from the last keys at which the next queries are found
  constexpr int ITEMS = 4;                       // the producer finds work up to three items ahead of a consumer
  // registers a thread; 168 at launch
  constexpr int PRODUCER_REGISTERS = 72, CONSUMER_REGISTERS = (3 * 168 - PRODUCER_REGISTERS) / 2;
  enum Meeting { of_producers = 1, of_group, of_turn = of_group + GROUPS };  // named barriers
  BARACUDA_DYNAMIC_SMEM(T, shared);
  T* const queries = shared + (1024 - smem_address(shared) % 1024) % 1024 / sizeof(T);  // [QUERY_STAGES] panels
  T* const keys = queries + QUERY_STAGES * ROWS * D;                                    // [2] tiles of panels
  T* const values = keys + 2 * TILE;                                                    // [2] tiles of panels
  T* const staged = values + 2 * TILE;                                                  // [WARPS] panels of 16 rows
  __shared__ Barrier queries_full[QUERY_STAGES], queries_empty[QUERY_STAGES], keys_full[2], keys_empty[2],
      values_full[2], values_empty[2];
  __shared__ Item<GROUPS> items[ITEMS];

  if (threadIdx.x == 0) {
    for (int n = 0; n < QUERY_STAGES; ++n) queries_full[n].init(LOADERS), queries_empty[n].init(WARPS);
    for (int n = 0; n < 2; ++n) {
      keys_full[n].init(LOADERS), values_full[n].init(LOADERS);
      keys_empty[n].init(WARPS), values_empty[n].init(WARPS);
    }
  }
  __syncthreads();

  if (warpgroup() == 0) {
    release_registers<PRODUCER_REGISTERS>();
    Stage<QUERY_STAGES> query_stage;
    Stage<2> key_stage, value_stage;
    using Source = typename Where::template Keys<P, KEYS>;
    const u32 count = static_cast<u32>(p.tiles * p.heads);
    const bool even = count <= gridDim.x || (!Where::surplus && p.left >= unbounded && p.right >= unbounded);
    u32 ticket = blockIdx.x;
    bool drawn = true;
    const auto draw = [&] {
      if (!drawn) ticket = (even ? ticket : atomicAdd(static_cast<u32*>(p.ticket), 1u)) + gridDim.x;
      drawn = true;
    };
    const auto draw_early = [&] {  // ahead of find_next, as the atomic takes as long as a tile
      if (threadIdx.x == 0) draw();
      __syncwarp();
    };
    const auto find_next = [&](Item<GROUPS>& item) {
      if (threadIdx.x == 0) {
        item.work.query_len = 0;
        do {
          draw();
          drawn = false;
          if (ticket < count)
            item.template fill<KEYS>(p, Where::template find<ROWS>(p, ticket, static_cast<u32>(p.heads)));
        } while (ticket < count && item.work.query_len == 0);
      }
      __syncwarp();
    };
    const auto meet = [] { sync_threads<LOADERS>(of_producers); };
    const auto load_queries = [&](const Item<GROUPS>& item) {
      Barrier& full = queries_full[query_stage.index()];
      queries_empty[query_stage.index()].wait(query_stage.empty_parity());
      if (item.work.query_len != 0) {
        const Strided<T> q{item.work.template queries<T>(p.q, p.stride[0]), p.stride[0][2]};
        tile::panels_up<ROWS, D, LOADERS, WIDE>(q, p.d_k).copy(queries + query_stage.index() * (ROWS * D), item.rows);
        full.arrive_when_copied(WIDE);
      } else {
        full.arrive();
      }
      query_stage.advance();
    };
    const auto load = [&](const Item<GROUPS>& item, Item<GROUPS>& next) {
      const bool some = item.first < item.last;
      const int start = item.start, first = some ? item.first : start, key_len = item.key_len;
      Source source(p, item.work);
      const auto up = [&](const auto& rows, int cols) {
        return tile::panels_up<KEYS, D, LOADERS, WIDE>(rows.from(start), cols);
      };
      auto next_keys = up(source.template keys<T>(), p.d_k);
      auto next_values = up(source.template values<T>(), p.d_v);
      if (some) source.template begin<-KEYS>(start, meet);
      const int look = min(start, first + LOOK);
#pragma unroll 1
      for (int k0 = start; k0 >= first - KEYS; k0 -= KEYS) {  // the values of a tile after the keys of the next
        if (some && k0 >= first) {
          keys_empty[key_stage.index()].wait(key_stage.empty_parity());
          next_keys.copy(keys + key_stage.index() * TILE, key_len - k0);
          keys_full[key_stage.index()].arrive_when_copied(WIDE);
          key_stage.advance();
        }
        if (!AHEAD && k0 == start) load_queries(item);
        if (k0 == look + KEYS) draw_early();
        if (k0 == look) find_next(next);
        if (k0 == start) continue;
        if (some) {
          values_empty[value_stage.index()].wait(value_stage.empty_parity());
          next_values.copy(values + value_stage.index() * TILE, key_len - k0 - KEYS);
          values_full[value_stage.index()].arrive_when_copied(WIDE);
          value_stage.advance();
          if (k0 >= first) source.template step<-KEYS>(k0 + KEYS);
        }
        if (Source::looks_up || k0 == look - KEYS) meet();
        if (AHEAD && k0 == look - KEYS) load_queries(next);
      }
      if (next.start <= next.first + LOOK) draw_early();
    };
    find_next(items[0]);
    meet();
    if (AHEAD) load_queries(items[0]);
    u32 n = 0;
#pragma unroll 1
    for (; items[n % ITEMS].work.query_len != 0; ++n) load(items[n % ITEMS], items[(n + 1) % ITEMS]);
    if (!AHEAD) load_queries(items[n % ITEMS]);
    cp_async_commit();
    cp_async_wait<0>();
    return;
  }

  acquire_registers<CONSUMER_REGISTERS>();
  const int group = warpgroup() - 1, row0 = static_cast<int>(threadIdx.x - LOADERS) / warp_size * 16;
  GroupProducts<T, D, ROWS, KEYS> products(queries, keys, values, group);
  const auto await = [](Barrier& full, u32 parity) {
    full.wait(parity);
    wgmma_publish();  // rows that cp.async brought
  };
  Rows<T, D, 1, KEYS> r;
  Stage<2> key_stage, value_stage;
  Stage<QUERY_STAGES> query_stage;
  const auto take_turn = [&] {
    if (PING_PONG) sync_threads<256>(of_turn + group);
  };
  const auto pass_turn = [&] {
    if (PING_PONG) arrive_threads<256>(of_turn + (group + 1 == GROUPS ? 0 : group + 1));
  };
  const auto release_keys = [&] {
    keys_empty[key_stage.index()].arrive_as_warp();
    key_stage.advance();
  };
  const auto release_values = [&] {
    values_empty[value_stage.index()].arrive_as_warp();
    value_stage.advance();
  };
  const auto skip_tile = [&] {
    take_turn();
    pass_turn();
    keys_full[key_stage.index()].wait(key_stage.full_parity());
    release_keys();
    values_full[value_stage.index()].wait(value_stage.full_parity());
    release_values();
  };
  const auto start_scores = [&](u32 queries) {
    await(keys_full[key_stage.index()], key_stage.full_parity());
    take_turn();
    wgmma_fence();
    products.start_scores(r.s[0], queries, key_stage.index());
  };
  const auto end_scores = [&] {
    hold(r.s[0]);
    release_keys();
  };
  const auto start_outputs = [&](bool add) {
    await(values_full[value_stage.index()], value_stage.full_parity());
    hold(r.weights[0]);
    hold(r.acc[0]);
    wgmma_fence();
    products.start_outputs(r.acc[0], r.weights[0], value_stage.index(), add);
  };
  const auto end_outputs = [&] {
    hold(r.acc[0]);
    hold(r.weights[0]);
    release_values();
  };
  if (group == 1) pass_turn();
#pragma unroll 1
  for (u32 n = 0;; ++n) {
    const Stage<QUERY_STAGES> its = query_stage;
    query_stage.advance();
    const Stage<QUERY_STAGES> after = query_stage;
    const bool begun = AHEAD && key_stage.count != value_stage.count;  // whether the first scores are already in flight
    if (!begun) await(queries_full[its.index()], its.full_parity());
    const Item<GROUPS>& item = items[n % ITEMS];  // read again where needed, which costs less than registers
    const Work& work = item.work;
    if (work.query_len == 0) break;
    const int first = item.first, i0 = static_cast<int>(work.first) + row0;
    const auto mine = item.part[group];
    const bool some = first < item.last, seen = some && mine.from < mine.to;
    const TermsOf<TERMS, float, true, P> terms(p, work);
    const float c = TERMS == 0 ? p.unit_log2 : terms.c;
    r.begin();
    if constexpr (TERMS != 0) r.begin_with(terms);
    const auto cut = [&](int k0) {
      if (k0 >= mine.begin && k0 + KEYS <= mine.end) return;
      r.mask(item.key_len - k0, item.low - k0 + row0, item.high - k0 + row0);
    };

    if (p.sign != 1.0) {
      T* const own = queries + its.index() * (ROWS * D) + group * 4096;
#pragma unroll 1
      for (int n = threadIdx.x % 128; n < 64 * D; n += 128) {
        T& x = own[n / 4096 * (ROWS * 64) + n % 4096];
        x = from_acc<T>(to_acc(x) * static_cast<float>(p.sign));
      }
      wgmma_publish();
      sync_threads<128>(of_group + group);
    }

    int k0 = some ? item.start : -1;
    bool fresh = true;                  // outputs are still those of the last queries
    const auto walk = [&](auto kind) {  // from the first scores on
      using K = decltype(kind);
      const auto weigh = [&] {
        if constexpr (K::sloped) r.template add_apart<K::capped>(terms, i0, k0);
        cut(k0);
        if constexpr (K::sloped) r.template weigh_lazily<Scores::apart>(c);
        else if constexpr (K::capped) r.weigh_capped(terms);
        else r.weigh_lazily(c);
      };
      weigh();
      r.pack();
#pragma unroll 1
      for (k0 -= KEYS; k0 >= mine.from; k0 -= KEYS) {
        start_scores(its.index());
        start_outputs(!fresh);
        fresh = false;
        pass_turn();
        wgmma_wait<1>();
        end_scores();
        weigh();
        hold(r.s[0]);
        if (r.moved) {  // behind a branch: the assembler of 13.0 moves a wait up to the last one before it
          wgmma_wait<0>();
          hold(r.acc[0]);
          r.rescale();
        }
        wgmma_wait<0>();
        end_outputs();
        r.pack();
      }
    };
    // The same by mma.sync, each warp by itself, from global memory. Values that are not finite are left out of the
    // product and then added key by key.
    const auto walk_with_care = [&] {
      const int key_len = item.key_len, low = item.low, high = item.high, rows = item.rows, start = item.start;
      const typename Where::template Keys<P, 0> source(p, work);
      const auto k = source.template keys<T>(), v = source.template values<T>();
      const T* const q = work.template queries<T>(p.q, p.stride[0]) + row0 * p.stride[0][2];
      const Strided<T> queries{q, p.stride[0][2]};
      const int g = lane_id() / 4, t = lane_id() % 4;
      const auto element = [](const auto& x, int r, int rows, int c, int cols) {
        return r < rows && c < cols ? to_acc(x.row(r)[c]) : 0.0f;
      };
      r.clear();
      if constexpr (TERMS != 0) r.begin_with(terms, true);
#pragma unroll 1
      for (k0 = start; k0 >= first; k0 -= KEYS) {
        r.each([](float& x, int, int) { x = 0.0f; });
#pragma unroll 1
        for (int d = 0; d < D; d += 16) {
          const auto pair = [&](const auto& x, int r, int rows, int c) {
            return pack_pair<T>(element(x, r, rows, c, p.d_k), element(x, r, rows, c + 1, p.d_k));
          };
          const int c = d + 2 * t;
          u32 x[4];
#pragma unroll
          for (int n = 0; n < 4; ++n) x[n] = pair(queries, g + n % 2 * 8, rows - row0, c + n / 2 * 8);
#pragma unroll
          for (int n = 0; n < KEYS / 8; ++n) {
            const int key = k0 + 8 * n + g;
            mma_m16n8k16<T>(r.s[0][n], x, {pair(k, key, key_len, c), pair(k, key, key_len, c + 8)});
          }
        }
        r.each([&](float& x, int, int) { x *= static_cast<float>(p.sign); });
        if constexpr (TERMS != 0) r.add(terms, i0, k0);
        r.mask(key_len - k0, low - k0 + row0, high - k0 + row0);
        r.template weigh<Scores::exact>(c);
        r.rescale();
        r.pack();
        u32 weights[KEYS / 16][4];  // in local memory
        for (int j = 0; j < KEYS / 16; ++j) memcpy(weights[j], r.weights[0][j], sizeof(weights[j]));
#pragma unroll 1
        for (int j = 0; j < KEYS; j += 16) {
          const u32(&x)[4] = *opaque(&weights[j / 16]);
#pragma unroll
          for (int n = 0; n < D / 8; ++n) {
            const auto finite = [&](int key) {
              const float y = element(v, key, key_len, 8 * n + g, p.d_v);
              return math::isfinite(y) ? y : 0.0f;
            };
            const auto pair = [&](int key) { return pack_pair<T>(finite(key), finite(key + 1)); };
            mma_m16n8k16<T>(r.acc[0][n], x, {pair(k0 + j + 2 * t), pair(k0 + j + 2 * t + 8)});
          }
        }
        r.add_nonfinite_of(
            [&](int j, int n, int e) { return element(v, k0 + j, key_len, 8 * n + 2 * t + e, p.d_v); }, key_len - k0,
            [&](int row, int key) { return key >= low - k0 + row0 + row && key < high - k0 + row0 + row; });
      }
    };
    // Writes outputs and lse. With one stage of queries, sums and lse are completed during the last product; wait()
    // waits for it.
    const auto put = [&](const auto& wait, float unit = ln_2<float>) {
      float* const lse = p.lse == nullptr ? nullptr : static_cast<float*>(p.lse) + work.stat + row0;
      const auto put_lse = [&] { r.put_lse(lse, item.rows - row0, unit); };
      float factors[1][2];
      if constexpr (!AHEAD) {
        r.close(factors, terms.again);
        put_lse();
        wait();
      }
      T* const y = work.template outputs<T>(p.y, p.stride[3], row0);
      // after the address of y it takes 58 bytes of local memory more
      if constexpr (AHEAD) r.close(factors, terms.again);
      const auto beside = [&] {
        if constexpr (AHEAD) put_lse();
      };
      if constexpr (WIDE) {
        put_staged<1, 0>(staged + row0 * 64, y, p.stride[3][2], item.rows - row0, p.d_v, r.acc[0], factors[0], beside);
      } else {
        r.put(y, p.stride[3][2], item.rows - row0, p.d_v, factors);
        beside();
      }
    };
    if (!seen) {
      for (; k0 >= first; k0 -= KEYS) skip_tile();
      queries_empty[its.index()].arrive_as_warp();
      r.clear();
      if constexpr (TERMS != 0) r.begin_with(terms);
      put([] {});
      continue;
    }
    if (!begun) {
      for (; k0 >= mine.to; k0 -= KEYS) skip_tile();
      start_scores(its.index());
      pass_turn();
      wgmma_wait<0>();
      end_scores();
    }
    with_kind_of<TERMS, WIDE>(p, walk);
    queries_empty[its.index()].arrive_as_warp();
    start_outputs(!fresh);
    if constexpr (AHEAD) {
      const Item<GROUPS>& next = items[(n + 1) % ITEMS];
      bool begins = false;
      if (k0 < first && p.sign == 1.0) {
        await(queries_full[after.index()], after.full_parity());
        const auto part = next.part[group];
        begins = next.work.query_len != 0 && next.first < next.last && part.from < part.to && next.start < part.to;
      }
      if (begins) {
        await(keys_full[key_stage.index()], key_stage.full_parity());
        take_turn();
      }
      wgmma_fence();
      products.start_scores(r.s[0], after.index(), key_stage.index());  // meaningless where no tile follows
      if (begins) pass_turn();
      wgmma_wait<1>();
      end_outputs();
      put([] {});
      wgmma_wait<0>();
      hold(r.s[0]);
      if (begins) release_keys();
    } else {
      put([&] {
        wgmma_wait<0>();
        end_outputs();
      });
    }
    for (; k0 >= first; k0 -= KEYS) skip_tile();
    if (__any_sync(all_lanes, r.lost_base() || (item.bounded && r.suspicious()))) {
      float kept[AHEAD ? KEYS / 8 : 1][4];  // the next scores, in local memory
#pragma unroll
      for (int n = 0; AHEAD && n < KEYS / 8; ++n) memcpy(kept[n], r.s[0][n], sizeof(kept[n]));
      walk_with_care();
      put([] {}, terms.natural);
#pragma unroll
      for (int n = 0; AHEAD && n < KEYS / 8; ++n) {
        const float(&x)[4] = *opaque(&kept[n]);
#pragma unroll
        for (int e = 0; e < 4; ++e) r.s[0][n][e] = x[e];
      }
    }
  }
  if (group == 0) take_turn();  // the turn that the other consumer passed last
}

template <class T, class P> BARACUDA_D void clear_ticket(const P& p) {
  if (threadIdx.x == 0) *static_cast<u32*>(p.ticket) = 0;
}

}  // namespace baracuda
