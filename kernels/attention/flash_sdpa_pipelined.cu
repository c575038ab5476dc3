// flash_sdpa_pipelined    y[i] = sum_j softmax_j(s[i,j]) v[j];   lse[i] = log sum_j exp(s[i,j]);   s = scale q[i] k[j]
//   With TERMS also what terms.cuh adds to s, but masks and dropout: those are flash_sdpa_wgmma's.
//
// A block is a warpgroup that loads and two that multiply, each 64 of 128 queries. The loader copies queries, and tile after
// tile keys and values, each into two places, and goes on to the block's next queries while the others finish with the last.
// Which those are it asks for ahead, by a ticket. A group starts the scores of a tile before the product with the values of
// the tile before, and its softmax runs beside that product. Up to head_dim 128 groups take turns at starting products, so
// that one's softmax runs beside the other's products. Tiles are walked from the last one that a query sees to the first:
// ALiBi's highest scores come first, and only the first tile walked may be short. A group passes by the tiles that none of
// its own queries sees. Order of sums fixed as in flash_sdpa_mma, by this kernel's tiles.
//
// Two groups share what is loaded: blocks of 64 queries, which load for themselves, read 9 TB/s from the L2 cache, all that
// it has. (H200, bf16, head_dim 128, 16384 tokens, causal: 670 instead of 583 TFLOP/s.)
//
// 0 times an infinite or NaN value is NaN, but a masked one adds nothing: a warp whose sums look odd does all again with care.
#include <baracuda/flash_wgmma.cuh>
#include <baracuda/paged.cuh>
#include <baracuda/pipeline.cuh>

namespace baracuda {

// WIDE: every row of q, k, v and y starts 16-byte aligned and is whole 16-byte pieces.
template <class T, int D, int KEYS, bool WIDE, class Where, int TERMS, class P>
BARACUDA_D void flash_sdpa_pipelined(const P& p) {
  using namespace attention;
  constexpr int LOADERS = 128, GROUPS = 2, WARPS = GROUPS * 4, ROWS = GROUPS * 64, TILE = KEYS * D;
  constexpr bool TURNS = D <= 128;
  // Where queries have two places outputs go through theirs, else straight from registers, and the place is free for the next
  // queries with the last scores. (H200, 1024 keys, causal: head_dim 128 378 TFLOP/s, one place 341; 256 354, not freed 328.)
  constexpr int STORES = D <= 128 ? 2 : 1;
  constexpr int OF_LOADER = D <= 128 ? 56 : 40, OF_WORKER = (3 * 168 - OF_LOADER) / 2;  // of 168 registers at launch
  enum Meeting { of_loaders = 1, of_group, of_turn = of_group + GROUPS };  // ids of barriers
  BARACUDA_DYNAMIC_SMEM(T, shared);
  T* const queries = shared + (1024 - smem_address(shared) % 1024) % 1024 / sizeof(T);  // [STORES] panels
  T* const keys = queries + STORES * ROWS * D;                                         // [2] tiles of panels
  T* const values = keys + 2 * TILE;                                                   // [2] tiles of panels
  __shared__ Barrier queries_there[STORES], queries_free[STORES], keys_there[2], keys_free[2], values_there[2], values_free[2];
  __shared__ Work announced[STORES];  // what the queries are of; without rows: there is no more
  __shared__ u32 taken[2];            // tickets of the loaders, in turn

  if (threadIdx.x == 0) {
    for (int n = 0; n < STORES; ++n) queries_there[n].make(LOADERS), queries_free[n].make(WARPS);
    for (int n = 0; n < 2; ++n) {
      keys_there[n].make(LOADERS), values_there[n].make(LOADERS);
      keys_free[n].make(WARPS), values_free[n].make(WARPS);
    }
  }
  __syncthreads();
  Round<STORES> store;
  Round<2> key_place, value_place;

  if (warpgroup() == 0) {
    leave_registers<OF_LOADER>();
    Barrier* due = nullptr;  // of the last copies
    const auto flush = [&] {
      cp_async_wait<0>();
      wgmma_publish();
      if (due != nullptr) due->arrive();
      due = nullptr;
    };
    const auto sent = [&](Barrier& there) {  // by then the copies before have come
      cp_async_commit();
      cp_async_wait<1>();
      wgmma_publish();
      if (due != nullptr) due->arrive();
      due = &there;
    };
    const auto announce = [&](const Work& work) {  // before queries_there
      queries_free[store.place()].wait(store.emptied());
      if (threadIdx.x == 0) announced[store.place()] = work;
    };
    const auto load = [&](const Work& work) {
      const int rows = inside<ROWS>(work.query_len, work.first);
      const Span<ROWS> span(p, work);
      const int key_len = span.key_len, first = span.template first<KEYS>(), last = span.end(rows);
      const int start = span.template start<KEYS>(rows);
      using Source = typename Where::template Keys<P, KEYS>;
      const Source source(p, work);
      const auto k = source.template keys<T>(), v = source.template values<T>();
      const auto load_queries = [&] {
        announce(work);
        const T* const q = work.template queries<T>(p.q, p.stride[0]);
        tile::copy_panels<ROWS, D, LOADERS>(queries + store.place() * (ROWS * D), q, p.stride[0][2], rows, p.d_k, WIDE);
        sent(queries_there[store.place()]);
        store.step();
      };
      if (first >= last) {
        load_queries();
        return flush();
      }
      const auto up = [](const auto& rows, int cols) { return tile::panels_up<KEYS, D, LOADERS, WIDE>(rows, cols); };
      source.template begin<-KEYS>(start, [] { sync_threads<LOADERS>(of_loaders); });
      keys_free[key_place.place()].wait(key_place.emptied());
      tile::copy_panels<KEYS, D, LOADERS>(keys + key_place.place() * TILE, k.from(start), key_len - start, p.d_k, WIDE);
      sent(keys_there[key_place.place()]);
      key_place.step();
      load_queries();
      auto next_keys = up(k.from(start - KEYS), p.d_k);
      auto next_values = up(v.from(start - KEYS), p.d_v);
#pragma unroll 1
      for (int k0 = start; k0 >= first; k0 -= KEYS) {
        if (k0 > first) {
          keys_free[key_place.place()].wait(key_place.emptied());
          next_keys.copy(keys + key_place.place() * TILE);
          sent(keys_there[key_place.place()]);
          key_place.step();
          source.template step<-KEYS>(k0);
        }
        T* const to = values + value_place.place() * TILE;
        values_free[value_place.place()].wait(value_place.emptied());
        if (k0 == start) tile::copy_panels<KEYS, D, LOADERS>(to, v.from(start), key_len - start, p.d_v, WIDE);
        else next_values.copy(to);
        sent(values_there[value_place.place()]);
        value_place.step();
        if (Source::looks_up) sync_threads<LOADERS>(of_loaders);
      }
      if (Source::looks_up) cp_async_wait<0>();  // what was looked up too far
    };
    const u32 count = static_cast<u32>(p.tiles * p.heads);
    u32 n = blockIdx.x;
#pragma unroll 1
    for (u32 number = 0; n < count; ++number) {
      const Work work = Where::template find<ROWS>(p, n, static_cast<u32>(p.heads));
      n = count;
      if (count > gridDim.x && threadIdx.x == 0) n = gridDim.x + atomicAdd(static_cast<u32*>(p.ticket), 1u);  // comes meanwhile
      if (work.query_len != 0) load(work);
      if (count > gridDim.x) {
        if (threadIdx.x == 0) taken[number % 2] = n;
        sync_threads<LOADERS>(of_loaders);
        n = taken[number % 2];
      }
    }
    flush();
    announce(Work{});
    sent(queries_there[store.place()]);
    flush();
    return;
  }

  take_registers<OF_WORKER>();
  const int group = warpgroup() - 1, row0 = static_cast<int>(threadIdx.x - LOADERS) / warp_size * 16;
  GroupProducts<T, D, ROWS, KEYS> products(queries, keys, values, group);
  const auto free_up = [](Barrier& b) {
    if (lane_id() == 0) b.arrive();
    __syncwarp();  // or the compiler takes what follows for a matter of single lanes, and descriptors for theirs
  };
#pragma unroll 1
  for (;;) {
    const u32 at = store.place();
    queries_there[at].wait(store.filled());
    store.step();
    const Work work = announced[at];
    T* const own = queries + at * (ROWS * D);
    if (work.query_len == 0) return;
    const int rows = inside<ROWS>(work.query_len, work.first), i0 = static_cast<int>(work.first) + row0;
    const Span<ROWS> span(p, work);
    const int key_len = span.key_len, first = span.template first<KEYS>(), last = span.end(rows);
    const int start = span.template start<KEYS>(rows);
    const Span<64> mine(work.first + 64 * group + work.shift, p.left, p.right, work.key_len);  // what the group sees
    const int from = mine.template first<KEYS>(), to = rows > 64 * group ? mine.end(rows - 64 * group) : 0;
    const TermsOf<TERMS, float, true, P> terms(p, work);
    const float c = terms.c;
    Rows<T, D, 1, KEYS> r;
    if constexpr (TERMS != 0) r.begin_with(terms);
    const auto cut = [&](int k0) {
      if (mine.template cuts<KEYS>(k0)) r.mask(key_len - k0, span.low - k0 + row0, span.high - k0 + row0);
    };

    if (p.sign != 1.0) {
#pragma unroll 1
      for (int n = threadIdx.x % 128; n < 64 * D; n += 128) {
        T& x = own[n / 4096 * (ROWS * 64) + group * 4096 + n % 4096];
        x = from_acc<T>(to_acc(x) * static_cast<float>(p.sign));
      }
      wgmma_publish();
      sync_threads<128>(of_group + group);
    }

    int k0 = start;
    const auto take_turn = [&] {
      if (TURNS && (group != 0 || k0 != start)) sync_threads<256>(of_turn + group);
    };
    const auto pass_turn = [&] {
      if (TURNS) arrive_threads<256>(of_turn + (group + 1 == GROUPS ? 0 : group + 1));
    };
    const auto pass_by = [&] {
      take_turn();
      pass_turn();
      keys_there[key_place.place()].wait(key_place.filled());
      free_up(keys_free[key_place.place()]);
      key_place.step();
      values_there[value_place.place()].wait(value_place.filled());
      free_up(values_free[value_place.place()]);
      value_place.step();
    };
    const auto walk = [&](auto kind) {
      using K = decltype(kind);
      const auto weigh = [&] {
        if constexpr (K::sloped) r.template add_apart<K::capped>(terms, i0, k0);
        cut(k0);
        if constexpr (K::sloped) r.template weigh<Scores::apart>(c);
        else if constexpr (K::capped) r.weigh_capped(terms);
        else r.weigh(c);
      };
      const auto start_scores = [&] {
        keys_there[key_place.place()].wait(key_place.filled());
        take_turn();
        wgmma_fence();
        products.start_scores(r.s[0], at, key_place.place());
      };
      const auto end_scores = [&] {
        hold(r.s[0]);
        free_up(keys_free[key_place.place()]);
        key_place.step();
      };
      const auto start_outputs = [&] {
        values_there[value_place.place()].wait(value_place.filled());
        hold(r.weights[0]);
        hold(r.acc[0]);
        wgmma_fence();
        products.start_outputs(r.acc[0], r.weights[0], value_place.place());
      };
      const auto end_outputs = [&] {
        wgmma_wait<0>();
        hold(r.acc[0]);
        hold(r.weights[0]);
        free_up(values_free[value_place.place()]);
        value_place.step();
      };
      start_scores();
      pass_turn();
      wgmma_wait<0>();
      end_scores();
      weigh();
      r.pack();
#pragma unroll 1
      for (k0 -= KEYS; k0 >= from; k0 -= KEYS) {
        start_scores();
        start_outputs();
        pass_turn();
        wgmma_wait<1>();
        end_scores();
        weigh();
        hold(r.s[0]);
        if (r.moved) {  // behind a branch: the assembler (13.0) moves a wait up to the last one before it
          wgmma_wait<0>();
          hold(r.acc[0]);
          r.rescale();
        }
        end_outputs();
        r.pack();
      }
      if (STORES == 1) free_up(queries_free[at]);
      start_outputs();
      end_outputs();
    };
    // The same by mma.sync, a warp for itself, from global memory. What of the values is not finite is left out, and then added
    // by hand.
    const auto walk_with_care = [&] {
      const typename Where::template Keys<P, 0> source(p, work);
      const auto k = source.template keys<T>(), v = source.template values<T>();
      const T* const q = work.template queries<T>(p.q, p.stride[0]) + row0 * p.stride[0][2];
      const Strided<T> queries{q, p.stride[0][2]};
      const int g = lane_id() / 4, t = lane_id() % 4;
      const auto element = [](const auto& x, int r, int rows, int c, int cols) {
        return r < rows && c < cols ? to_acc(x.row(r)[c]) : 0.0f;
      };
      r.clear();
      if constexpr (TERMS != 0) r.begin_with(terms);
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
        r.mask(key_len - k0, span.low - k0 + row0, span.high - k0 + row0);
        r.weigh(c);
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
        r.add_odd_of([&](int j, int n, int e) { return element(v, k0 + j, key_len, 8 * n + 2 * t + e, p.d_v); }, key_len - k0,
                     [&](int row, int key) { return key >= span.low - k0 + row0 + row && key < span.high - k0 + row0 + row; });
      }
    };
    if (first < last) {
      while (k0 >= first && k0 >= to) pass_by(), k0 -= KEYS;
      if (from < to) with_kind_of<TERMS, WIDE>(p, walk);
      else if (STORES == 1) free_up(queries_free[at]);
      for (; k0 >= first; k0 -= KEYS) pass_by();
      if (TURNS && group == 0) sync_threads<256>(of_turn);  // the turn it did not wait for
      if (__any_sync(all_lanes, span.bounded && r.suspicious())) walk_with_care();
    } else if (STORES == 1) {
      free_up(queries_free[at]);
    }
    float* const lse = p.lse == nullptr ? nullptr : static_cast<float*>(p.lse) + work.stat + row0;
    T* const y = work.template outputs<T>(p.y, p.stride[3], row0);
    if constexpr (STORES == 1) {
      r.template store<WIDE>(y, p.stride[3][2], lse, rows - row0, p.d_v, terms.again);
    } else {
      sync_threads<128>(of_group + group);  // no product reads the queries any more
      r.template finish<tile::Panels<ROWS>>(own, row0, lse, rows - row0, terms.again);
      __syncwarp();
#pragma unroll
      for (int d = 0; d < D; d += 64) {
        tile::copy_out<16, 64, warp_size>(y + d, p.stride[3][2], own + d * ROWS + row0 * 64, lane_id(), rows - row0,
                                          p.d_v - d, WIDE);
      }
    }
    __syncwarp();
    if (STORES == 2) free_up(queries_free[at]);
  }
}

template <class T, class P> BARACUDA_D void clear_ticket(const P& p) {
  if (threadIdx.x == 0) *static_cast<u32*>(p.ticket) = 0;
}

}  // namespace baracuda
