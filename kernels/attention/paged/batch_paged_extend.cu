// batch_paged_extend    y[i] = sum_j softmax_j(s[i, j]) v[j] for a sequence's newest queries over the keys of its pages;
//                       s = scale q[i] k[j], capped, less a slope times the distance; lse as in flash_sdpa.
//
// A block takes a unit of keys (extend.cuh) of one key head, for ROWS rows: pairs of a query and one of the heads that
// share the key head. So a few queries read the cache once, and as many rows as a warpgroup multiplies cost no more
// than one. Keys and values stream through a ring of SLOTS tiles of KEYS rows, filled by cp.async: keys and values of a
// tile take two slots, one behind the other. A warp has 16 rows, as in flash.cuh; products are wgmma's or mma.sync's.
//
// Order of sums. Tiles of a block of keys are taken from the last to the first; then the block's sum is added to those of
// the blocks after it in the unit. Weights are powers of differences of scores, so no score is too large. Nothing of it
// depends on which other rows a block has, so a row's bits follow from its position alone.
#include "attention/paged/extend.cuh"
#include "attention/flash_wgmma.cuh"

namespace baracuda {
namespace attention {

// The rows of a tile in q.
template <class T, class P> struct UnitQueries {
  const P& p;
  const T* first;  // of the sequence's first query and the key head's first head
  u32 row0;        // the tile's first row
  int columns_before = 0;

  BARACUDA_D const T* row(int r) const {
    const u32 at = row0 + static_cast<u32>(r), group = static_cast<u32>(p.group), query = at / group;
    return first + query * p.stride[0][2] + (at - query * group) * p.stride[0][1] + columns_before;
  }
  BARACUDA_D UnitQueries columns(int c) const { return {p, first, row0, columns_before + c}; }
  template <int STEP> struct Walk {
    const UnitQueries& of;
    int at, column, rows;
    BARACUDA_D const T* next() {
      const int r = at;
      at += STEP;
      return r < rows ? of.row(r) + column : of.first;
    }
  };
  template <int STEP> BARACUDA_D Walk<STEP> walk(int row, int column, int rows) const {
    return {*this, row, column, rows};
  }
};

// Products of a warp's 16 rows with tiles of keys and values, panels of 64 columns. The weights stay in registers.
template <class T, int D, int ROWS, int KEYS, bool WGMMA> struct UnitProducts {
  static constexpr int TILE = KEYS * D;
  const T *queries, *ring;  // queries: of all rows
  int row0;                 // the warp's first row
  GroupProducts<T, D, ROWS, KEYS> group;

  BARACUDA_D UnitProducts(const T* queries, const T* ring, int row0)
      : queries(queries), ring(ring), row0(row0), group(queries, ring, ring, WGMMA ? warpgroup() : 0) {}

  BARACUDA_D void scores(float (&s)[KEYS / 8][4], u32 slot) const {
    if constexpr (WGMMA) {
      wgmma_fence();
      group.start_scores(s, 0, slot);
      wgmma_wait<0>();
      hold(s);
    } else {
#pragma unroll
      for (int n = 0; n < KEYS / 8; ++n) s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0.0f;
#pragma unroll
      for (int panel = 0; panel < D / 64; ++panel) {
        const tile::Reader<64, false> query(queries + panel * (ROWS * 64) + row0 * 64);
        const tile::Reader<64, true> key(ring + slot * TILE + panel * (KEYS * 64));
#pragma unroll
        for (int d = 0; d < 64; d += 16) {
          u32 x[4];
          query.read(x, 0, d);
#pragma unroll
          for (int n = 0; n < KEYS / 8; n += 2) {
            u32 y[4];
            key.read(y, 8 * n, d);
            mma_m16n8k16<T>(s[n], x, {y[0], y[1]});
            mma_m16n8k16<T>(s[n + 1], x, {y[2], y[3]});
          }
        }
      }
    }
  }
  BARACUDA_D void outputs(float (&acc)[D / 8][4], const u32 (&weights)[KEYS / 16][4], u32 slot) const {
    if constexpr (WGMMA) {
      hold(weights);
      hold(acc);
      wgmma_fence();
      group.start_outputs(acc, weights, slot);
      wgmma_wait<0>();
      hold(acc);
    } else {
#pragma unroll
      for (int panel = 0; panel < D / 64; ++panel) {
        const tile::Reader<64, false> value(ring + slot * TILE + panel * (KEYS * 64));
#pragma unroll
        for (int j = 0; j < KEYS; j += 16) {
#pragma unroll
          for (int n = 0; n < 8; n += 2) {
            u32 y[4];
            value.read_transposed(y, j, 8 * n);
            mma_m16n8k16<T>(acc[8 * panel + n], weights[j / 16], {y[0], y[1]});
            mma_m16n8k16<T>(acc[8 * panel + n + 1], weights[j / 16], {y[2], y[3]});
          }
        }
      }
    }
  }
};

// What a lane's two rows see of a tile of keys.
struct LaneRows {
  Extended::Reach seen[2] = {{0, 0}, {0, 0}};
  TreeRow tree[2];

  // Rows from `row` on, of which `count` exist.
  template <class P> BARACUDA_D LaneRows(const P& p, const Extended& sequence, u32 row, int count) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int r = 8 * half + lane_id() / 4;
      if (r >= count) continue;
      const int query = static_cast<int>((row + r) / static_cast<u32>(p.group));
      seen[half] = sequence.reach(p, query);
      tree[half] = TreeRow(p, sequence, query);
    }
  }
  BARACUDA_D bool sees(int half, int key) const {
    return key >= seen[half].low && key < seen[half].high && !tree[half].hides(key);
  }
};

// The walk of a block over its unit, for one tile of rows.
template <class T, int D, int GROUPS, int KEYS, int SLOTS, bool WIDE, bool TERMS, bool WGMMA, class P> struct UnitWalk {
  static constexpr int THREADS = GROUPS * 128, ROWS = GROUPS * 64, TILE = KEYS * D;
  // Sums of earlier blocks stay in registers; past head_dim 128 a unit is one block.
  static constexpr bool ADDS = D <= 128;
  using Source = PagedKeys<P, KEYS>;
  using Registers = Rows<T, D, 1, KEYS>;
  static_assert(SLOTS == 4 || SLOTS == 5, "tiles are looked up as far ahead as they are copied");

  const P& p;
  const Extended& sequence;
  const Unit& unit;
  T *const queries, *const ring;
  const u32 tile_row;  // the tile's first row
  const int count;     // rows that exist
  const int begin, end;
  const int row0;  // the warp's first row of the tile
  const UnitProducts<T, D, ROWS, KEYS, WGMMA> products;

  // The next slot has arrived, and all have read the one that is filled next.
  BARACUDA_D static void arrive() {
    cp_async_wait<SLOTS - 2>();
    if constexpr (WGMMA) wgmma_publish();
    __syncthreads();
  }

  BARACUDA_D void load_queries() const {
    const T* const first =
        static_cast<const T*>(p.q) + sequence.row * p.stride[0][2] + unit.kv * p.group * p.stride[0][1];
    tile::copy_panels<ROWS, D, THREADS>(queries, UnitQueries<T, P>{p, first, tile_row}, count, p.d_k, WIDE);
    if (p.sign != 1.0) {
      cp_async_commit();
      cp_async_wait<0>();
      __syncthreads();
      const float sign = static_cast<float>(p.sign);
      for (int n = threadIdx.x; n < ROWS * D; n += THREADS) queries[n] = from_acc<T>(to_acc(queries[n]) * sign);
    }
  }

  BARACUDA_D void walk() const {
    Work work{};
    work.b = static_cast<u32>(unit.b), work.kv = unit.kv, work.key_len = sequence.keys;
    Source source(p, work);
    const int start = (end - 1) / KEYS * KEYS, first = begin / KEYS * KEYS;
    auto next_keys = tile::panels_up<KEYS, D, THREADS, WIDE>(source.template keys<T>().from(start), p.d_k);
    auto next_values = tile::panels_up<KEYS, D, THREADS, WIDE>(source.template values<T>().from(start), p.d_v);
    // Copies the next slot: keys, then values, of tile after tile.
    int ahead = start;
    u32 fill = 0;
    bool values = false;
    const auto copy = [&] {
      if (ahead >= first) {
        T* const to = ring + fill * TILE;
        if (values) next_values.copy(to, sequence.keys - ahead);
        else next_keys.copy(to, sequence.keys - ahead);
      }
      cp_async_commit();
      if (values) ahead -= KEYS;
      values = !values;
      fill = fill + 1 == SLOTS ? 0 : fill + 1;
    };

    source.template begin<-KEYS>(start, [] { __syncthreads(); });
    load_queries();
    copy();
    copy();
    source.template step<-KEYS>(start);
    copy();
    if (SLOTS == 5) copy();

    [[maybe_unused]] float slope[2];
    [[maybe_unused]] int position[2];
    if constexpr (TERMS) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const u32 r = min(row0 + 8 * half + lane_id() / 4, count - 1), at = tile_row + r;
        slope[half] = slope_of<float>(p, unit.b, unit.kv * static_cast<u32>(p.group) + at % static_cast<u32>(p.group));
        position[half] = sequence.position(p, static_cast<int>(at / static_cast<u32>(p.group)));
      }
    }
    // All rows see the keys from whole_begin to whole_end.
    const u32 group = static_cast<u32>(p.group);
    const int whole_begin = sequence.reach(p, static_cast<int>((tile_row + count - 1) / group)).low;
    int whole_end = sequence.reach(p, static_cast<int>(tile_row / group)).high;
    if (p.tree_mask != nullptr) whole_end = min(whole_end, sequence.own_keys());

    Registers rows;
    float total[ADDS ? D / 8 : 1][4];
    PartialSum<float> sums[2];
    u32 slot = 0;
    bool fresh = true;  // no block is summed yet
    const float scale_log2 = p.unit_log2;
#pragma unroll 1
    for (int k0 = start; k0 >= first; k0 -= KEYS) {
      arrive();
      copy();
      source.template step<-KEYS>(k0 - KEYS);
      products.scores(rows.scores[0], slot);
      slot = slot + 1 == SLOTS ? 0 : slot + 1;

      const int own = k0 + Registers::own_key();
      if constexpr (TERMS) {
        rows.each([&](float& x, int r, int c) { x = with_terms(p, x, slope[r / 8], position[r / 8], own + c); });
      }
      const bool cuts = k0 < whole_begin || k0 + KEYS > whole_end;
      if (cuts) {
        const LaneRows lanes(p, sequence, tile_row + row0, count - row0);
        rows.each([&](float& x, int r, int c) {
          if (!lanes.sees(r / 8, own + c)) x = -numeric<float>::infinity();
        });
      }
      rows.template weigh<Scores::exact>(scale_log2);
      rows.rescale();
      rows.pack();

      arrive();
      copy();
      if (cuts) leave_out_nonfinite(rows, k0, slot);
      products.outputs(rows.acc[0], rows.weights[0], slot);
      slot = slot + 1 == SLOTS ? 0 : slot + 1;
      if (k0 == first || k0 == block_start(block_of(k0))) {
        const bool unsummed = fresh;
        fresh = false;
        end_block(rows, total, sums, unsummed, scale_log2);
      }
    }
    if constexpr (ADDS) store(total, sums);
    else store(rows.acc[0], sums);
    cp_async_wait<0>();
    __syncthreads();
  }

  // 0 times infinity is NaN, but a value that a row does not see adds nothing.
  BARACUDA_D void leave_out_nonfinite(Registers& rows, int k0, u32 slot) const {
    T* const values = ring + slot * TILE;
    if (!has_nonfinite<TILE / 2, THREADS>(values)) return;
    const LaneRows lanes(p, sequence, tile_row + row0, count - row0);
    rows.template add_nonfinite<tile::Panels<KEYS>>(values, sequence.keys - k0,
                                                    [&](int row, int key) { return lanes.sees(row / 8, k0 + key); });
    __syncthreads();
    clear_nonfinite<TILE / 2, THREADS>(values);
    if constexpr (WGMMA) wgmma_publish();
    __syncthreads();
  }

  // Closes a block's sum and adds it to those of the blocks after it, if there are any.
  template <int N>
  BARACUDA_D static void end_block(Registers& rows, float (&total)[N][4], PartialSum<float> (&sums)[2], bool fresh,
                                   float scale_log2) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float sum = rows.row_sum[0][half];
      sum += __shfl_xor_sync(all_lanes, sum, 1);
      sum += __shfl_xor_sync(all_lanes, sum, 2);
      const bool none = rows.limit[0][half] == -numeric<float>::infinity();
      const auto block = PartialSum<float>{none ? -numeric<float>::infinity() : rows.base[0][half], sum}.closed();
      if constexpr (!ADDS) {
        sums[half] = block;
      } else if (fresh) {
        sums[half] = block;
#pragma unroll
        for (int n = 0; n < D / 8; ++n) {
          total[n][2 * half] = rows.acc[0][n][2 * half], total[n][2 * half + 1] = rows.acc[0][n][2 * half + 1];
        }
      } else {
        const Added<float> added(sums[half], block, scale_log2);
        sums[half] = added.both;
#pragma unroll
        for (int n = 0; n < D / 8; ++n) {
#pragma unroll
          for (int e = 2 * half; e < 2 * half + 2; ++e) total[n][e] = added.add(total[n][e], rows.acc[0][n][e]);
        }
      }
    }
    if constexpr (ADDS) rows.clear();
  }

  template <int N> BARACUDA_D void store(const float (&x)[N][4], const PartialSum<float> (&sums)[2]) const {
    const int pitch = round_up(p.d_v, 4), column = lane_id() % 4 * 2;
    const u32 group = static_cast<u32>(p.group);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int r = row0 + 8 * half + lane_id() / 4;
      if (r >= count) continue;
      const u32 at = tile_row + r, query = at / group, head = unit.kv * group + (at - query * group);
      const i64 row = ((sequence.row + query) * p.num_heads + head) * p.units + unit.unit;
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

template <class T, int D, int GROUPS, int KEYS, int SLOTS, bool WIDE, bool TERMS, bool WGMMA, class P>
BARACUDA_D void batch_paged_extend(const P& p) {
  using namespace attention;
  using Walk = UnitWalk<T, D, GROUPS, KEYS, SLOTS, WIDE, TERMS, WGMMA, P>;
  constexpr int THREADS = Walk::THREADS, ROWS = Walk::ROWS;
  BARACUDA_DYNAMIC_SMEM(T, shared);
  T* const queries = shared + (1024 - smem_address(shared) % 1024) % 1024 / sizeof(T);  // panels
  T* const ring = queries + ROWS * D;
  const Unit unit = Unit::of(p);
  const Extended sequence = Extended::find<THREADS>(p, unit.b, unit.first(), unit.tile * ROWS, unit.begin(p));
  const int row0 = static_cast<int>(threadIdx.x) / warp_size * 16;
  const u32 group = static_cast<u32>(p.group), rows = static_cast<u32>(sequence.queries) * group;
#pragma unroll 1
  for (u32 tile_row = unit.tile * ROWS; tile_row < rows; tile_row += static_cast<u32>(p.row_tiles) * ROWS) {
    const int count = static_cast<int>(min<u32>(ROWS, rows - tile_row));
    const int begin = max(unit.begin(p), sequence.reach(p, static_cast<int>(tile_row / group)).low);
    const int end = min(unit.end(p), sequence.reach(p, static_cast<int>((tile_row + count - 1) / group)).high);
    if (begin >= end) continue;
    Walk{p, sequence, unit, queries, ring, tile_row, count, begin, end, row0, {queries, ring, row0}}.walk();
  }
}

}  // namespace baracuda
