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
// consumers take turns at starting products (ping-pong, by order barriers), so that the softmax of one overlaps the
// products of the other. Tiles are walked from the last one that a query sees to the first: the highest scores of ALiBi
// come first, and only the first tile walked may be partial. A consumer skips tiles that none of its own queries sees.
//
// 0 times an infinite or NaN value is NaN, but a masked value must add nothing: a warp whose sums look odd, or
// overflowed, computes its rows again by walk_with_care.
//
// Order of sums: over a row's keys as in flash_sdpa_mma, fixed by (element, D) and by where this kernel's tiles start.
// Measurements: docs/design/attention-forward.md.
#include "attention/dense/flash_sdpa_consumer.cuh"
#include "attention/dense/flash_sdpa_producer.cuh"

namespace baracuda {

// WIDE: every row of q, k, v and y starts 16-byte aligned and is whole 16-byte pieces.
template <class T, int D, int KEYS, bool WIDE, class Where, int TERMS, class P>
BARACUDA_D void flash_sdpa_pipelined(const P& p) {
  using namespace attention;
  using Shape = PipelineShape<D, KEYS>;
  BARACUDA_DYNAMIC_SMEM(T, shared);
  const PipelineBuffers<T, D, Shape> buffers(shared);
  __shared__ PipelineBarriers<Shape> barriers;
  __shared__ WorkTile<Shape> tiles[Shape::WORK_TILES];
  const auto tile = [&](u32 n) -> WorkTile<Shape>& { return tiles[n % Shape::WORK_TILES]; };
  if (threadIdx.x == 0) barriers.init();
  __syncthreads();

  if (warpgroup() == 0) {
    release_registers<Shape::PRODUCER_REGISTERS>();
    Producer<T, D, Shape, WIDE, Where, P> producer(p, buffers, barriers);
    producer.find_next(tile(0));
    producer.meet();
    if (Shape::AHEAD) producer.load_queries(tile(0));
    u32 n = 0;
#pragma unroll 1
    for (; tile(n).work.query_len != 0; ++n) producer.load_tile(tile(n), tile(n + 1));
    if (!Shape::AHEAD) producer.load_queries(tile(n));  // tells consumers that there are no more
    cp_async_commit();
    cp_async_wait<0>();
    return;
  }

  acquire_registers<Shape::CONSUMER_REGISTERS>();
  using Computes = Consumer<T, D, Shape, WIDE, Where, TERMS, P>;
  typename Computes::Registers rows;
  Computes consumer(p, buffers, barriers, rows);
  Stage<Shape::QUERY_STAGES> query_stage;
  if (consumer.group == 1) consumer.pass_order();
#pragma unroll 1
  for (u32 n = 0;; ++n) {
    // Wait for the queries of work tile n.
    const Stage<Shape::QUERY_STAGES> queries = query_stage;
    query_stage.advance();
    const bool begun = consumer.has_begun();
    if (!begun) consumer.await(barriers.queries, queries);
    if (tile(n).work.query_len == 0) break;
    typename Computes::Tile now(p, tile(n), queries, consumer.group, consumer.row0);
    consumer.begin(now);
    if (!now.seen) {
      consumer.finish_unseen(now);
      continue;
    }

    // Walk over the tiles of keys.
    if (!begun) consumer.first_scores(now);
    with_kind_of<TERMS, WIDE>(p, [&](auto kind) { consumer.template walk<decltype(kind)>(now); });
    consumer.release_queries(now);

    // Store the outputs, beside the first scores of work tile n + 1 where there is a stage for its queries.
    consumer.start_outputs(now);
    if constexpr (Shape::AHEAD) consumer.finish_ahead(now, query_stage, tile(n + 1));
    else consumer.finish(now);
    consumer.skip_tiles(now, now.first);

    // 0 times an infinite or NaN value is NaN, but a masked value must add nothing.
    if (__any_sync(all_lanes, consumer.suspicious(now))) consumer.store_again(now);
  }
  if (consumer.group == 0) consumer.await_order();  // the turn that the other consumer passed last
}

template <class T, class P> BARACUDA_D void clear_ticket(const P& p) {
  if (threadIdx.x == 0) *static_cast<u32*>(p.ticket) = 0;
}

}  // namespace baracuda
