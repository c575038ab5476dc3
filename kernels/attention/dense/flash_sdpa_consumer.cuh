#pragma once
// flash_sdpa_consumer    a consumer warpgroup of flash_sdpa_pipelined: the scores, the online softmax and the outputs
//                        of 64 queries of a work tile, from stages that the producer fills.
#include "attention/dense/flash_sdpa_careful.cuh"
#include "attention/dense/flash_sdpa_pipeline.cuh"

namespace baracuda {
namespace attention {

// What a consumer needs of a work tile.
template <class Shape, class Terms> struct ConsumerTile {
  const WorkTile<Shape>& tile;               // read again where needed, which costs less than registers
  const Stage<Shape::QUERY_STAGES> queries;  // the stage of its queries
  const int first, query0;                   // its first key; the warp's first query in the sequence
  const KeyRange range;
  const bool some, seen;  // whether there are keys for the tile, and for the consumer
  const Terms terms;
  const float scale_log2;
  int k0;             // the tile of keys that is next
  bool fresh = true;  // outputs are still those of the last queries

  template <class P>
  BARACUDA_D ConsumerTile(const P& p, const WorkTile<Shape>& tile, const Stage<Shape::QUERY_STAGES>& queries, int group,
                          int row0)
      : tile(tile), queries(queries), first(tile.first), query0(static_cast<int>(tile.work.first) + row0),
        range(tile.range[group]), some(first < tile.last), seen(some && range.begin < range.end), terms(p, tile.work),
        scale_log2(is_same<Terms, NoTerms<float>> ? p.unit_log2 : terms.c), k0(some ? tile.start : -1) {}
};

template <class T, int D, class Shape, bool WIDE, class Where, int TERMS, class P> struct Consumer {
  static constexpr int ROWS = Shape::ROWS, KEYS = Shape::KEYS;
  static constexpr bool AHEAD = Shape::AHEAD;
  using Named = NamedBarrier<Shape>;
  using QueryStage = Stage<Shape::QUERY_STAGES>;
  using Registers = Rows<T, D, 1, KEYS>;
  using Tile = ConsumerTile<Shape, TermsOf<TERMS, float, true, P>>;

  const P& p;
  const PipelineBuffers<T, D, Shape>& buffers;
  PipelineBarriers<Shape>& barriers;
  const int group, row0;
  GroupProducts<T, D, ROWS, KEYS> products;
  Registers& rows;  // no member, as the compiler tells members apart late where arrays are among them
  Stage<2> key_stage, value_stage;

  BARACUDA_D Consumer(const P& p, const PipelineBuffers<T, D, Shape>& buffers, PipelineBarriers<Shape>& barriers,
                      Registers& rows)
      : p(p), buffers(buffers), barriers(barriers), group(warpgroup() - 1),
        row0(static_cast<int>(threadIdx.x - Shape::PRODUCERS) / warp_size * 16),
        products(buffers.queries, buffers.keys, buffers.values, group), rows(rows) {}

  // ---- barriers

  template <int STAGES> static BARACUDA_D void await(StageBarriers<STAGES>& of, const Stage<STAGES>& stage) {
    of.await_full(stage);
    wgmma_publish();  // rows that cp.async brought
  }
  // The order barrier: consumers take turns at starting products.
  BARACUDA_D void await_order() const {
    if (Shape::PING_PONG) sync_threads<256>(Named::order + group);
  }
  BARACUDA_D void pass_order() const {
    if (Shape::PING_PONG) arrive_threads<256>(Named::order + (group + 1 == Shape::GROUPS ? 0 : group + 1));
  }
  BARACUDA_D void release_keys() {
    barriers.keys.empty[key_stage.index()].arrive_as_warp();
    key_stage.advance();
  }
  BARACUDA_D void release_values() {
    barriers.values.empty[value_stage.index()].arrive_as_warp();
    value_stage.advance();
  }
  BARACUDA_D void release_queries(const Tile& now) { barriers.queries.empty[now.queries.index()].arrive_as_warp(); }

  // ---- products

  // Whether the first scores of the work tile that is next are already in flight.
  BARACUDA_D bool has_begun() const { return AHEAD && key_stage.count != value_stage.count; }

  BARACUDA_D void start_scores(const Tile& now) {
    await(barriers.keys, key_stage);
    await_order();
    wgmma_fence();
    products.start_scores(rows.scores[0], now.queries.index(), key_stage.index());
  }
  BARACUDA_D void end_scores() {
    hold(rows.scores[0]);
    release_keys();
  }
  BARACUDA_D void start_outputs(const Tile& now) {
    await(barriers.values, value_stage);
    hold(rows.weights[0]);
    hold(rows.acc[0]);
    wgmma_fence();
    products.start_outputs(rows.acc[0], rows.weights[0], value_stage.index(), !now.fresh);
  }
  BARACUDA_D void end_outputs() {
    hold(rows.acc[0]);
    hold(rows.weights[0]);
    release_values();
  }
  // The first scores of a work tile, where they do not overlap the outputs of the last.
  BARACUDA_D void first_scores(Tile& now) {
    skip_tiles(now, now.range.end);
    start_scores(now);
    pass_order();
    wgmma_wait<0>();
    end_scores();
  }
  // Passes over the tiles of keys that begin at `down_to` or later.
  BARACUDA_D void skip_tiles(Tile& now, int down_to) {
    for (; now.k0 >= down_to; now.k0 -= KEYS) {
      await_order();
      pass_order();
      barriers.keys.await_full(key_stage);
      release_keys();
      barriers.values.await_full(value_stage);
      release_values();
    }
  }

  // ---- phases of a work tile

  BARACUDA_D void begin(const Tile& now) {
    rows.begin();
    if constexpr (TERMS != 0) rows.begin_with(now.terms);
    if (p.sign != 1.0) negate_queries(now);
  }
  BARACUDA_D void negate_queries(const Tile& now) const {  // multiplies the group's queries by p.sign, in their stage
    T* const own = buffers.queries + now.queries.index() * (ROWS * D) + group * 4096;
#pragma unroll 1
    for (int n = threadIdx.x % 128; n < 64 * D; n += 128) {
      T& x = own[n / 4096 * (ROWS * 64) + n % 4096];
      x = from_acc<T>(to_acc(x) * static_cast<float>(p.sign));
    }
    wgmma_publish();
    sync_threads<128>(Named::of_group + group);
  }

  // Turns the scores of the tile at k0 into weights, by an online softmax.
  template <class Kind> BARACUDA_D void softmax(const Tile& now) {
    online_softmax<Kind>(rows, now.terms, now.scale_log2, now.query0, now.k0, [&] {
      if (now.k0 >= now.range.whole_begin && now.k0 + KEYS <= now.range.whole_end) return;
      mask(now);
    });
  }
  BARACUDA_D void mask(const Tile& now) {
    const WorkTile<Shape>& tile = now.tile;
    rows.mask(tile.key_len - now.k0, tile.low - now.k0 + row0, tile.high - now.k0 + row0);
  }
  // The tiles of keys of a work tile, from its first scores to its last weights.
  template <class Kind> BARACUDA_D void walk(Tile& now) {
    softmax<Kind>(now);
    rows.pack();
#pragma unroll 1
    for (now.k0 -= KEYS; now.k0 >= now.range.begin; now.k0 -= KEYS) {
      // Start the scores of this tile, then the outputs of the one before.
      start_scores(now);
      start_outputs(now);
      now.fresh = false;
      pass_order();
      wgmma_wait<1>();
      end_scores();
      // Online softmax, while the outputs are in flight.
      softmax<Kind>(now);
      hold(rows.scores[0]);
      // Rescale the accumulator.
      if (rows.moved) {  // behind a branch: the assembler of 13.0 moves a wait up to the last one before it
        wgmma_wait<0>();
        hold(rows.acc[0]);
        rows.rescale();
      }
      wgmma_wait<0>();
      end_outputs();
      rows.pack();
    }
  }

  // Waits for the last product of a work tile and stores its outputs, while the first scores of the next work tile are
  // in flight, which wait for `next_queries`.
  BARACUDA_D void finish_ahead(const Tile& now, const QueryStage& next_queries, const WorkTile<Shape>& next) {
    bool begins = false;
    if (now.k0 < now.first && p.sign == 1.0) {
      await(barriers.queries, next_queries);
      const KeyRange range = next.range[group];
      begins = next.work.query_len != 0 && next.first < next.last && range.begin < range.end && next.start < range.end;
    }
    if (begins) {
      await(barriers.keys, key_stage);
      await_order();
    }
    wgmma_fence();
    // meaningless where no tile follows
    products.start_scores(rows.scores[0], next_queries.index(), key_stage.index());
    if (begins) pass_order();
    wgmma_wait<1>();
    end_outputs();
    store(now);
    wgmma_wait<0>();
    hold(rows.scores[0]);
    if (begins) release_keys();
  }
  BARACUDA_D void finish(const Tile& now) {
    store(now, ln_2<float>, [&] {
      wgmma_wait<0>();
      end_outputs();
    });
  }
  // The outputs of a work tile of which the consumer sees no key.
  BARACUDA_D void finish_unseen(Tile& now) {
    skip_tiles(now, now.first);
    release_queries(now);
    rows.clear();
    if constexpr (TERMS != 0) rows.begin_with(now.terms);
    store(now);
  }

  // Stores outputs and lse, whose unit is that of the bases. With one stage of queries, sums and lse are completed
  // during the last product; wait() waits for it.
  BARACUDA_D void store(const Tile& now, float unit = ln_2<float>) {
    store(now, unit, [] {});
  }
  template <class Wait> BARACUDA_D void store(const Tile& now, float unit, const Wait& wait) {
    const Work& work = now.tile.work;
    float* const lse = p.lse == nullptr ? nullptr : static_cast<float*>(p.lse) + work.stat + row0;
    const auto put_lse = [&] { rows.put_lse(lse, now.tile.row_count - row0, unit); };
    float factors[1][2];
    if constexpr (!AHEAD) {
      rows.close(factors, now.terms.again);
      put_lse();
      wait();
    }
    T* const y = work.template outputs<T>(p.y, p.stride[3], row0);
    // after the address of y it takes 58 bytes of local memory more
    if constexpr (AHEAD) rows.close(factors, now.terms.again);
    const auto beside = [&] {
      if constexpr (AHEAD) put_lse();
    };
    if constexpr (WIDE) {
      put_staged<1, 0>(buffers.outputs + row0 * 64, y, p.stride[3][2], now.tile.row_count - row0, p.d_v, rows.acc[0],
                       factors[0], beside);
    } else {
      rows.put(y, p.stride[3][2], now.tile.row_count - row0, p.d_v, factors);
      beside();
    }
  }

  // ---- rows whose results look wrong

  BARACUDA_D bool suspicious(const Tile& now) const {
    return rows.lost_base() || (now.tile.bounded && rows.suspicious());
  }
  // Computes a warp's rows again and stores them; keeps the scores of the next work tile.
  BARACUDA_D void store_again(const Tile& now) {
    float kept[AHEAD ? KEYS / 8 : 1][4];  // the next scores, in local memory
#pragma unroll
    for (int n = 0; AHEAD && n < KEYS / 8; ++n) memcpy(kept[n], rows.scores[0][n], sizeof(kept[n]));
    walk_with_care(now);
    store(now, now.terms.natural);
#pragma unroll
    for (int n = 0; AHEAD && n < KEYS / 8; ++n) {
      const float(&score)[4] = *opaque(&kept[n]);
#pragma unroll
      for (int e = 0; e < 4; ++e) rows.scores[0][n][e] = score[e];
    }
  }
  // The walk of one warp by itself, from global memory: weights come from differences of scores, and values that are
  // not finite are left out of the product and then added key by key.
  BARACUDA_D void walk_with_care(const Tile& now) {
    const int key_len = now.tile.key_len, low = now.tile.low, high = now.tile.high;
    const int query_count = now.tile.row_count, start = now.tile.start;
    const Work& work = now.tile.work;
    const typename Where::template Keys<P, 0> source(p, work);
    const auto of_keys = source.template keys<T>(), of_values = source.template values<T>();
    const Padded<decltype(source.template keys<T>())> keys{of_keys, key_len, p.d_k}, values{of_values, key_len, p.d_v};
    const T* const q = work.template queries<T>(p.q, p.stride[0]) + row0 * p.stride[0][2];
    const Padded<Strided<T>> queries{{q, p.stride[0][2]}, query_count - row0, p.d_k};
    const int lane_col = lane_id() % 4 * 2;
    rows.clear();
    if constexpr (TERMS != 0) rows.begin_with(now.terms, true);
#pragma unroll 1
    for (int k0 = start; k0 >= now.first; k0 -= KEYS) {
      rows.each([](float& x, int, int) { x = 0.0f; });
      add_scores_with_care<T, D, KEYS>(rows.scores[0], queries, keys, k0);
      rows.each([&](float& x, int, int) { x *= static_cast<float>(p.sign); });
      if constexpr (TERMS != 0) rows.add(now.terms, now.query0, k0);
      rows.mask(key_len - k0, low - k0 + row0, high - k0 + row0);
      rows.template weigh<Scores::exact>(now.scale_log2);
      rows.rescale();
      rows.pack();
      add_finite_outputs<T, D, KEYS>(rows.acc[0], rows.weights[0], values, k0);
      rows.add_nonfinite_of(
          [&](int j, int n, int e) { return values.at(k0 + j, 8 * n + lane_col + e); }, key_len - k0,
          [&](int row, int key) { return key >= low - k0 + row0 + row && key < high - k0 + row0 + row; });
    }
  }
};

}  // namespace attention
}  // namespace baracuda
