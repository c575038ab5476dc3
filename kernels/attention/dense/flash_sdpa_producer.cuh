#pragma once
// flash_sdpa_producer    the producer warpgroup of flash_sdpa_pipelined: it finds work tiles, and copies their queries,
//                        keys and values into stages. It never waits for a copy, as full barriers count copies.
#include "attention/dense/flash_sdpa_pipeline.cuh"

namespace baracuda {
namespace attention {

// All threads of the warpgroup call each function, but for draw().
template <class T, int D, class Shape, bool WIDE, class Where, class P> struct Producer {
  static constexpr int THREADS = Shape::PRODUCERS, ROWS = Shape::ROWS, KEYS = Shape::KEYS, LOOK = Shape::LOOK;
  using Tile = WorkTile<Shape>;
  using Source = typename Where::template Keys<P, KEYS>;

  const P& p;
  const PipelineBuffers<T, D, Shape>& buffers;
  PipelineBarriers<Shape>& barriers;
  Stage<Shape::QUERY_STAGES> query_stage;
  Stage<2> key_stage, value_stage;
  const u32 count;  // of tickets
  const bool even;  // all tiles have the same work, so that block b takes tickets b, b + gridDim.x, …
  u32 ticket;
  bool drawn;  // `ticket` is still to be used

  BARACUDA_D Producer(const P& p, const PipelineBuffers<T, D, Shape>& buffers, PipelineBarriers<Shape>& barriers)
      : p(p), buffers(buffers), barriers(barriers), count(static_cast<u32>(p.tiles * p.heads)),
        even(count <= gridDim.x || (!Where::surplus && p.left >= unbounded_side && p.right >= unbounded_side)),
        ticket(blockIdx.x), drawn(true) {}

  BARACUDA_D void meet() const { sync_threads<THREADS>(NamedBarrier<Shape>::of_producers); }

  // ---- work tiles

  BARACUDA_D void draw() {
    if (!drawn) ticket = (even ? ticket : atomicAdd(static_cast<u32*>(p.ticket), 1u)) + gridDim.x;
    drawn = true;
  }
  BARACUDA_D void draw_early() {  // ahead of find_next, as the atomic takes as long as a tile
    if (threadIdx.x == 0) draw();
    __syncwarp();
  }
  // Finds the next work tile that has queries; query_len 0 says that there is none.
  BARACUDA_D void find_next(Tile& tile) {
    if (threadIdx.x == 0) {
      tile.work.query_len = 0;
      do {
        draw();
        drawn = false;
        if (ticket < count) tile.fill(p, Where::template find<ROWS>(p, ticket, static_cast<u32>(p.heads)));
      } while (ticket < count && tile.work.query_len == 0);
    }
    __syncwarp();
  }

  // ---- copies

  // Copies a tile's queries; where there is no tile, only tells consumers so.
  BARACUDA_D void load_queries(const Tile& tile) {
    Barrier& full = barriers.queries.full[query_stage.index()];
    barriers.queries.await_empty(query_stage);
    if (tile.work.query_len != 0) {
      const Strided<T> q{tile.work.template queries<T>(p.q, p.stride[0]), p.stride[0][2]};
      tile::panels_up<ROWS, D, THREADS, WIDE>(q, p.d_k).copy(buffers.queries + query_stage.index() * (ROWS * D),
                                                             tile.row_count);
      full.arrive_when_copied(WIDE);
    } else {
      full.arrive();
    }
    query_stage.advance();
  }
  // Copies the next tile of an operand, of which `left` rows exist, into a stage of `to`.
  template <class Panels>
  static BARACUDA_D void load(Panels& panels, T* to, StageBarriers<2>& of, Stage<2>& stage, int left) {
    of.await_empty(stage);
    panels.copy(to + stage.index() * Shape::TILE, left);
    of.full[stage.index()].arrive_when_copied(WIDE);
    stage.advance();
  }
  // Copies the keys and values of a work tile, the values of a tile of keys after the keys of the next one. On the way
  // it finds the next work tile, and copies its queries.
  BARACUDA_D void load_tile(const Tile& tile, Tile& next) {
    const bool some = tile.first < tile.last;
    const int start = tile.start, first = some ? tile.first : start, key_len = tile.key_len;
    Source source(p, tile.work);
    auto keys = tile::panels_up<KEYS, D, THREADS, WIDE>(source.template keys<T>().from(start), p.d_k);
    auto values = tile::panels_up<KEYS, D, THREADS, WIDE>(source.template values<T>().from(start), p.d_v);
    if (some) source.template begin<-KEYS>(start, [this] { meet(); });
    const int look = min(start, first + LOOK);
#pragma unroll 1
    for (int k0 = start; k0 >= first - KEYS; k0 -= KEYS) {
      if (some && k0 >= first) load(keys, buffers.keys, barriers.keys, key_stage, key_len - k0);
      if (!Shape::AHEAD && k0 == start) load_queries(tile);
      if (k0 == look + KEYS) draw_early();
      if (k0 == look) find_next(next);
      if (k0 == start) continue;
      if (some) {
        load(values, buffers.values, barriers.values, value_stage, key_len - k0 - KEYS);
        if (k0 >= first) source.template step<-KEYS>(k0 + KEYS);
      }
      if (Source::looks_up || k0 == look - KEYS) meet();
      if (Shape::AHEAD && k0 == look - KEYS) load_queries(next);
    }
    if (next.start <= next.first + LOOK) draw_early();
  }
};

}  // namespace attention
}  // namespace baracuda
