#pragma once
// flash_sdpa_pipeline    what the producer and the consumers of flash_sdpa_pipelined share: the block's shape, its work
//                        tiles, and the stages of shared memory with their barriers.
#include "attention/flash_wgmma.cuh"
#include "attention/paged.cuh"
#include <baracuda/pipeline.cuh>

namespace baracuda {
namespace attention {

template <int D, int TILE_KEYS> struct PipelineShape {
  static constexpr int PRODUCERS = 128, GROUPS = 2,
                       WARPS = GROUPS * 4;  // threads; consumer warpgroups, and their warps
  static constexpr int ROWS = GROUPS * 64, KEYS = TILE_KEYS, TILE = KEYS * D;
  static constexpr int QUERY_STAGES = D <= 128 ? 2 : 1;
  static constexpr bool PING_PONG = D <= 128;  // whether consumers take turns at starting products
  // Whether the first scores of the next queries overlap the last outputs.
  static constexpr bool AHEAD = QUERY_STAGES == 2;
  static constexpr int LOOK =
      AHEAD ? 2 * KEYS : KEYS;          // distance from the last keys at which the next queries are found
  static constexpr int WORK_TILES = 4;  // the producer finds work up to three tiles ahead of a consumer
  // registers a thread; 168 at launch
  static constexpr int PRODUCER_REGISTERS = 72, CONSUMER_REGISTERS = (3 * 168 - PRODUCER_REGISTERS) / 2;
};

// Named barriers: of the producer's threads, of the consumer of a group, and the order barrier of each group.
template <class Shape> struct NamedBarrier {
  enum { of_producers = 1, of_group, order = of_group + Shape::GROUPS };
};

// The keys that the 64 queries of a consumer see.
struct KeyRange {
  int begin, end;              // that some query sees, from the start of a tile on
  int whole_begin, whole_end;  // tiles within these keys are seen whole by all of them
};

// A tile of queries of a block, and what each consumer sees of the keys.
template <class Shape> struct WorkTile {
  Work work;                                              // query_len 0: there is no more
  int row_count, key_len, low, high, first, last, start;  // as Span has them
  bool bounded;
  KeyRange range[Shape::GROUPS];

  template <class P> BARACUDA_D void fill(const P& p, const Work& found) {
    constexpr int ROWS = Shape::ROWS, KEYS = Shape::KEYS;
    const Span<ROWS> span(p, found);
    work = found;
    row_count = inside<ROWS>(found.query_len, found.first);
    key_len = span.key_len, low = span.low, high = span.high, bounded = span.bounded;
    first = span.template first<KEYS>(), last = span.end(row_count), start = span.template start<KEYS>(row_count);
#pragma unroll
    for (int n = 0; n < Shape::GROUPS; ++n) {
      const Span<64> own(found.first + 64 * n + found.shift, p.left, p.right, found.key_len);
      range[n] = {own.template first<KEYS>(), row_count > 64 * n ? own.end(row_count - 64 * n) : 0, own.low + 63,
                  min(key_len, own.high)};
    }
  }
};

// The full and empty barriers of an operand's stages.
template <int STAGES> struct StageBarriers {
  Barrier full[STAGES], empty[STAGES];

  BARACUDA_D void init(u32 fillers, u32 readers) {
    for (int n = 0; n < STAGES; ++n) full[n].init(fillers), empty[n].init(readers);
  }
  BARACUDA_D void await_empty(const Stage<STAGES>& stage) { empty[stage.index()].wait(stage.empty_parity()); }
  BARACUDA_D void await_full(const Stage<STAGES>& stage) { full[stage.index()].wait(stage.full_parity()); }
};

template <class Shape> struct PipelineBarriers {
  StageBarriers<Shape::QUERY_STAGES> queries;
  StageBarriers<2> keys, values;

  BARACUDA_D void init() {
    queries.init(Shape::PRODUCERS, Shape::WARPS);
    keys.init(Shape::PRODUCERS, Shape::WARPS), values.init(Shape::PRODUCERS, Shape::WARPS);
  }
};

// The dynamic shared memory of a block: operands as panels of 64 columns.
template <class T, int D, class Shape> struct PipelineBuffers {
  T* const queries;  // [QUERY_STAGES][ROWS][D]
  T* const keys;     // [2][KEYS][D]
  T* const values;   // [2][KEYS][D]
  T* const outputs;  // [ROWS][64], of each warp 16 rows

  BARACUDA_D explicit PipelineBuffers(T* shared)
      : queries(shared + (1024 - smem_address(shared) % 1024) % 1024 / sizeof(T)),
        keys(queries + Shape::QUERY_STAGES * Shape::ROWS * D), values(keys + 2 * Shape::TILE),
        outputs(values + 2 * Shape::TILE) {}
};

}  // namespace attention
}  // namespace baracuda
