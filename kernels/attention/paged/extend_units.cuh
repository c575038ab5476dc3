#pragma once
// extend_units    the loop of the kernels of batch_paged_extend with tensor cores, whatever their caches hold.
//
// A block takes a unit of keys (extend.cuh) of one key head, for ROWS rows: pairs of a query and one of the heads that
// share the key head. So a few queries read the cache once, and as many rows as a warpgroup multiplies cost no more
// than one. Keys and values are multiplied from a ring of SLOTS tiles of KEYS rows of 16-bit elements: keys and values
// of a tile take two slots, one behind the other. A warp has 16 rows, as in flash.cuh.
//
// Copies are how tiles come there: those of a cache of such elements are copied (batch_paged_extend.cu), those of a
// cache of codes are decoded (batch_paged_extend_quantized.cu). With wgmma a warpgroup of producers fills the ring for
// the consumers: wgmma reads shared memory by another proxy, and the fence between the two waits for all copies of its
// thread. With mma.sync all threads fill and multiply.
//
// Order of sums. Tiles of a block of keys are taken from the last to the first; then the block's sum is added to those
// of the blocks after it in the unit. Weights are powers of differences of scores, so no score is too large. Nothing of it
// depends on which other rows a block has, so a row's bits follow from its position alone.
#include "attention/paged/extend_tiles.cuh"
#include <baracuda/pipeline.cuh>

namespace baracuda {
namespace attention {

// The shape of a block.
template <class T, int DIM, int GROUPS, int TILE_KEYS, int RING, bool IS_WIDE, bool HAS_TERMS, bool WARPGROUPS>
struct UnitShape {
  using Element = T;
  static constexpr int D = DIM, KEYS = TILE_KEYS, SLOTS = RING, TILE = KEYS * D, ROWS = GROUPS * 64;
  static constexpr bool WIDE = IS_WIDE, TERMS = HAS_TERMS, WGMMA = WARPGROUPS;
  static constexpr int CONSUMERS = GROUPS * 128, PRODUCERS = WGMMA ? 128 : 0, THREADS = CONSUMERS + PRODUCERS;
  static constexpr int COPIERS = WGMMA ? PRODUCERS : CONSUMERS;
  // Whether a unit may be several blocks. Their sum is in shared memory, where the queries were, as registers have
  // none to spare.
  static constexpr bool ADDS = WGMMA && D <= 128;
  static constexpr int FIRST = ADDS ? 2 * ROWS * D : ROWS * D;  // elements before the ring
  // Registers of producers and consumers, where those of the launch are too few.
  static constexpr bool TRADES = WGMMA && (GROUPS == 2 || D <= 128);
  static constexpr int PRODUCER_REGISTERS = GROUPS == 2 ? 72 : 56, CONSUMER_REGISTERS = GROUPS == 2 ? 216 : 200;
  // Whether a key's scores, or its weights, are multiplied by a factor of its own; whether TERMS may also be absent.
  static constexpr bool KEY_FACTORS = false, VALUE_FACTORS = false, ASKS = false;
};
enum UnitBarrier { all_threads, of_copiers, of_consumers };

// What a block does of a unit: one tile of rows, and the keys [begin, end).
struct UnitTile {
  u32 row;  // the tile's first
  int count, begin, end;
  template <int KEYS> BARACUDA_D int first() const { return begin / KEYS * KEYS; }
  template <int KEYS> BARACUDA_D int start() const { return (end - 1) / KEYS * KEYS; }
};

template <class Shape, class P>
BARACUDA_D void copy_queries(const P& p, const Extended& sequence, const Unit& unit, const UnitTile& of,
                             typename Shape::Element* to) {
  using T = typename Shape::Element;
  const T* const first = static_cast<const T*>(p.q) + unit.b * p.stride[0][0] + sequence.row * p.stride[0][2] +
                         unit.kv * p.group * p.stride[0][1];
  tile::copy_panels<Shape::ROWS, Shape::D, Shape::COPIERS>(to, UnitQueries<T, P>{p, first, of.row}, of.count, p.d_k,
                                                           Shape::WIDE);
}

// The barriers of the ring that producers fill, and of the queries.
template <class Shape> struct UnitBarriers {
  Barrier full[Shape::SLOTS], empty[Shape::SLOTS], queries_full, queries_empty;
  BARACUDA_D void init() {
    constexpr u32 warps = Shape::CONSUMERS / warp_size;
    for (int n = 0; n < Shape::SLOTS; ++n) full[n].init(Shape::PRODUCERS), empty[n].init(warps);
    queries_full.init(Shape::PRODUCERS), queries_empty.init(warps);
  }
};
template <class Shape> struct FilledRing {
  UnitBarriers<Shape>& barriers;
  Stage<Shape::SLOTS>& taken;
  BARACUDA_D u32 await(int) {
    barriers.full[taken.index()].wait(taken.full_parity());
    wgmma_publish();
    const u32 slot = taken.index();
    taken.advance();
    return slot;
  }
  BARACUDA_D void release(u32 slot) const { barriers.empty[slot].arrive_as_warp(); }
};

// What a warp of the consumers does: its 16 rows over the keys of a unit.
template <class Shape, class P> struct UnitWalk {
  using T = typename Shape::Element;
  static constexpr int D = Shape::D, KEYS = Shape::KEYS, CONSUMERS = Shape::CONSUMERS;
  static constexpr bool TERMS = Shape::TERMS, ADDS = Shape::ADDS;
  using Registers = Rows<T, D, 1, KEYS>;

  const P& p;
  const Extended& sequence;
  const Unit& unit;
  const UnitTile& of;
  T *const queries, *const ring;
  const int row0;              // the warp's first row of the tile
  const float* const factors;  // [SLOTS][KEYS]: of the keys, and of the values, in a slot of the ring

  BARACUDA_D static int consumer() { return static_cast<int>(threadIdx.x) - Shape::PRODUCERS; }
  BARACUDA_D static void meet() { sync_threads<CONSUMERS>(of_consumers); }

  BARACUDA_D void negate_queries() const {
    if (p.sign == 1.0) return;
    const float sign = static_cast<float>(p.sign);
#pragma unroll 1
    for (int n = consumer(); n < Shape::ROWS * D; n += CONSUMERS) queries[n] = from_acc<T>(to_acc(queries[n]) * sign);
    if constexpr (Shape::WGMMA) wgmma_publish();
    meet();
  }

  template <class Ring> BARACUDA_D void walk(Ring& slots) const {
    const int first = of.template first<KEYS>();
    [[maybe_unused]] float slope[2];
    [[maybe_unused]] int position[2];
    const u32 group = static_cast<u32>(p.group);
    if constexpr (TERMS && !Shape::ASKS) find_terms(slope, position);
    // All rows see the keys from whole_begin to whole_end.
    const int whole_begin = sequence.reach(p, static_cast<int>((of.row + of.count - 1) / group)).low;
    int whole_end = sequence.reach(p, static_cast<int>(of.row / group)).high;
    if (p.tree_mask != nullptr) whole_end = min(whole_end, sequence.own_keys());

    const UnitProducts<T, D, Shape::ROWS, KEYS, Shape::WGMMA> products(queries, ring, row0);
    if (ADDS) meet();  // all have read their queries
    Registers rows;
    PartialSum<float> sums[2];
    bool fresh = true;  // no block is summed yet
    const float scale_log2 = static_cast<float>(p.unit_log2);
#pragma unroll 1
    for (int k0 = of.template start<KEYS>(); k0 >= first; k0 -= KEYS) {
      const u32 of_keys = slots.await(k0);
      products.scores(rows.scores[0], of_keys);
      if constexpr (Shape::KEY_FACTORS) multiply_columns(rows, of_keys);
      slots.release(of_keys);

      const int own = k0 + Registers::own_key();
      if constexpr (TERMS) {
        if (!Shape::ASKS || p.has_terms) {
          if constexpr (Shape::ASKS) find_terms(slope, position);
          rows.each([&](float& x, int r, int c) { x = with_terms(p, x, slope[r / 8], position[r / 8], own + c); });
        }
      }
      const bool cuts = k0 < whole_begin || k0 + KEYS > whole_end;
      if (cuts) {
        const LaneRows lanes(p, sequence, of.row + row0, of.count - row0);
        rows.each([&](float& x, int r, int c) {
          if (!lanes.sees(r / 8, own + c)) x = -numeric<float>::infinity();
        });
      }
      rows.template weigh<Scores::exact>(scale_log2);
      rows.rescale();
      if constexpr (!Shape::VALUE_FACTORS) rows.pack();

      const u32 of_values = slots.await(k0);
      if constexpr (Shape::VALUE_FACTORS) {
        multiply_columns(rows, of_values);
        if (cuts) clear_unseen(rows, k0);
        rows.pack();
      }
      if (cuts) leave_out_nonfinite(rows, k0, ring + of_values * Shape::TILE);
      products.outputs(rows.acc[0], rows.weights[0], of_values);
      slots.release(of_values);
      if (k0 == first || k0 == block_start(block_of(k0))) {
        end_block(rows, sums, fresh, k0 == first, scale_log2);
        fresh = false;
      }
    }
    store(rows.acc[0], sums);
  }

  // Of the lane's two rows.
  BARACUDA_D void find_terms(float (&slope)[2], int (&position)[2]) const {
    const u32 group = static_cast<u32>(p.group);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const u32 at = of.row + min(row0 + 8 * half + lane_id() / 4, of.count - 1);
      slope[half] = slope_of<float>(p, unit.b, unit.kv * group + at % group);
      position[half] = sequence.position(p, static_cast<int>(at / group));
    }
  }

  // Multiplies scores or weights by the factors of their keys.
  BARACUDA_D void multiply_columns(Registers& rows, u32 slot) const {
    const float* const own = factors + slot * KEYS + Registers::own_key();
#pragma unroll
    for (int n = 0; n < KEYS / 8; ++n) {
      const float2 by = *reinterpret_cast<const float2*>(own + Registers::further(n, 0));
      float(&x)[4] = rows.scores[0][n];
      x[0] *= by.x, x[1] *= by.y, x[2] *= by.x, x[3] *= by.y;
    }
  }
  // Makes the weights of keys that a row does not see 0 again: a factor may be NaN.
  BARACUDA_D void clear_unseen(Registers& rows, int k0) const {
    const LaneRows lanes(p, sequence, of.row + row0, of.count - row0);
    const int own = k0 + Registers::own_key();
    rows.each([&](float& x, int r, int c) { x = lanes.sees(r / 8, own + c) ? x : 0.0f; });
  }

  // 0 times infinity is NaN, but a value that a row does not see adds nothing.
  BARACUDA_D void leave_out_nonfinite(Registers& rows, int k0, T* values) const {
    u32 found = 0;
    const u32* const words = reinterpret_cast<const u32*>(values);
#pragma unroll 4
    for (int n = lane_id(); n < Shape::TILE / 2; n += warp_size) found |= nonfinite_signs<T>(words[n]);
    if (!__any_sync(all_lanes, found != 0)) return;  // the same for all consumers
    const LaneRows lanes(p, sequence, of.row + row0, of.count - row0);
    rows.template add_nonfinite<tile::Panels<KEYS>>(values, sequence.keys - k0,
                                                    [&](int row, int key) { return lanes.sees(row / 8, k0 + key); });
    meet();
#pragma unroll 1
    for (int n = consumer(); n < Shape::TILE / 2; n += CONSUMERS) {
      u32& pair = reinterpret_cast<u32*>(values)[n];
      pair &= ~((nonfinite_signs<T>(pair) >> 15) * 0xffffu);
    }
    if constexpr (Shape::WGMMA) wgmma_publish();
    meet();
  }

  // Closes a block's sum and adds it to that of the blocks after it. The sum stays in the accumulator if it is the
  // last, else each thread keeps its own part.
  BARACUDA_D void end_block(Registers& rows, PartialSum<float> (&sums)[2], bool fresh, bool last,
                            float scale_log2) const {
    PartialSum<float> block[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float sum = rows.row_sum[0][half];
      sum += __shfl_xor_sync(all_lanes, sum, 1);
      sum += __shfl_xor_sync(all_lanes, sum, 2);
      const bool none = rows.limit[0][half] == -numeric<float>::infinity();
      block[half] = PartialSum<float>{none ? -numeric<float>::infinity() : rows.base[0][half], sum}.closed();
    }
    if constexpr (ADDS) {
      float4* const kept = reinterpret_cast<float4*>(queries) + consumer();
      if (!fresh) {
        const Added<float> added[2] = {{sums[0], block[0], scale_log2}, {sums[1], block[1], scale_log2}};
#pragma unroll
        for (int n = 0; n < D / 8; ++n) {
          const float4 old = kept[n * CONSUMERS];
          float(&x)[4] = rows.acc[0][n];
          x[0] = added[0].add(old.x, x[0]), x[1] = added[0].add(old.y, x[1]);
          x[2] = added[1].add(old.z, x[2]), x[3] = added[1].add(old.w, x[3]);
        }
        block[0] = added[0].both, block[1] = added[1].both;
      }
      if (!last) {
#pragma unroll
        for (int n = 0; n < D / 8; ++n) {
          const float(&x)[4] = rows.acc[0][n];
          kept[n * CONSUMERS] = float4{x[0], x[1], x[2], x[3]};
        }
        rows.clear();
      }
    }
    sums[0] = block[0], sums[1] = block[1];
  }

  BARACUDA_D void store(const float (&x)[D / 8][4], const PartialSum<float> (&sums)[2]) const {
    const int pitch = round_up(p.d_v, 4), column = lane_id() % 4 * 2;
    const u32 group = static_cast<u32>(p.group);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int r = row0 + 8 * half + lane_id() / 4;
      if (r >= of.count) continue;
      const u32 at = of.row + r, query = at / group, head = unit.kv * group + (at - query * group);
      const i64 row = first_sum(p, sequence.row + query, head) + unit.unit;
      float* const out = static_cast<float*>(p.parts) + row * pitch + column;
#pragma unroll
      for (int n = 0; n < D / 8; ++n) {
        if (8 * n + column < pitch) *reinterpret_cast<float2*>(out + 8 * n) = {x[n][2 * half], x[n][2 * half + 1]};
      }
      if (column == 0) static_cast<PartialSum<float>*>(p.stats)[row] = sums[half];
    }
  }
};

}  // namespace attention

// Copies: how a tile of rows gets its keys and values, from Copies::Source. Ring: where all threads do it.
template <class Shape, class Copies, class Ring, class P> BARACUDA_D void extend_units(const P& p) {
  using namespace attention;
  using T = typename Shape::Element;
  constexpr int ROWS = Shape::ROWS;
  BARACUDA_DYNAMIC_SMEM(T, shared);
  T* const queries = shared + (1024 - smem_address(shared) % 1024) % 1024 / sizeof(T);  // panels
  T* const ring = queries + Shape::FIRST;
  const Unit unit = Unit::of(p);
  const Extended sequence = Extended::of(p, unit.b);
  const u32 group = static_cast<u32>(p.group);
  const Extended::Part part = sequence.part(p);
  const u32 first_row = part.begin * group + unit.tile * ROWS, rows = part.end * group;
  if (unit.begin(p) >= sequence.keys || first_row >= rows) return;
  // Calls f for each of the block's tiles of rows of which some row sees keys of the unit.
  const auto for_tiles = [&](const auto& f) {
#pragma unroll 1
    for (u32 row = first_row; row < rows; row += static_cast<u32>(p.row_tiles) * ROWS) {
      const int count = static_cast<int>(min<u32>(ROWS, rows - row));
      const int begin = max(unit.begin(p), sequence.reach(p, static_cast<int>(row / group)).low);
      const int end = min(unit.end(p), sequence.reach(p, static_cast<int>((row + count - 1) / group)).high);
      if (begin < end) f(UnitTile{row, count, begin, end});
    }
  };
  const auto walk_of = [&](const UnitTile& tile) {
    const int row0 = UnitWalk<Shape, P>::consumer() / warp_size * 16;
    return UnitWalk<Shape, P>{p, sequence, unit, tile, queries, ring, row0, Copies::factors(ring)};
  };
  if constexpr (!Shape::WGMMA) {
    typename Copies::Source source(p, unit.b, unit.kv);
    for_tiles([&](const UnitTile& tile) {
      copy_queries<Shape>(p, sequence, unit, tile, queries);
      const auto walk = walk_of(tile);
      cp_async_commit();
      cp_async_wait<0>();
      __syncthreads();
      walk.negate_queries();
      Copies copies(p, sequence, unit, tile, source, ring);
      Ring slots(copies, ring);
      walk.walk(slots);
      cp_async_wait<0>();
      __syncthreads();
    });
  } else {
    __shared__ UnitBarriers<Shape> barriers;
    if (threadIdx.x == 0) barriers.init();
    __syncthreads();
    Stage<1> tiles;
    Stage<Shape::SLOTS> slot;
    if (warpgroup() == 0) {
      if constexpr (Shape::TRADES) release_registers<Shape::PRODUCER_REGISTERS>();
      typename Copies::Source source(p, unit.b, unit.kv);
      const auto fill = [&](const auto& copy) {
        barriers.empty[slot.index()].wait(slot.empty_parity());
        copy(ring + slot.index() * Shape::TILE, slot.index());
        Copies::arrive(barriers.full[slot.index()]);
        slot.advance();
      };
      for_tiles([&](const UnitTile& tile) {
        barriers.queries_empty.wait(tiles.empty_parity());
        copy_queries<Shape>(p, sequence, unit, tile, queries);
        barriers.queries_full.arrive_when_copied(Shape::WIDE);
        tiles.advance();
        Copies copies(p, sequence, unit, tile, source, ring);
#pragma unroll 1
        for (; copies.more(); copies.next()) {
          fill([&](T* to, u32 slot) { copies.fill_keys(to, slot); });
          fill([&](T* to, u32 slot) { copies.fill_values(to, slot); });
          copies.look_ahead();
        }
      });
      cp_async_commit();
      cp_async_wait<0>();
    } else {
      if constexpr (Shape::TRADES) acquire_registers<Shape::CONSUMER_REGISTERS>();
      FilledRing<Shape> slots{barriers, slot};
      for_tiles([&](const UnitTile& tile) {
        barriers.queries_full.wait(tiles.full_parity());
        wgmma_publish();
        tiles.advance();
        const auto walk = walk_of(tile);
        walk.negate_queries();
        walk.walk(slots);
        barriers.queries_empty.arrive_as_warp();
      });
    }
  }
}

}  // namespace baracuda
