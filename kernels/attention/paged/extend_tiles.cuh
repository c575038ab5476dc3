#pragma once
// extend_tiles   what a warp of batch_paged_extend does with tiles: the rows of queries, products, and which keys of a
//                tile its rows see.
#include "attention/paged/extend_tables.cuh"
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

// Products of a warp's 16 rows with tiles of keys and values, panels of 64 columns. Weights stay in registers, and up
// to head_dim 128 queries do, too.
template <class T, int D, int ROWS, int KEYS, bool WGMMA> struct UnitProducts {
  static constexpr int TILE = KEYS * D;
  static constexpr bool HOLDS = D <= 128;
  const T *queries, *ring;  // queries: of all rows
  int row0;                 // the warp's first row
  GroupProducts<T, D, ROWS, KEYS> group;
  u32 held[HOLDS ? D / 16 : 1][4];

  BARACUDA_D UnitProducts(const T* queries, const T* ring, int row0)
      : queries(queries), ring(ring), row0(row0),
        group(queries, ring, ring, WGMMA ? __shfl_sync(all_lanes, row0 / 64, 0) : 0) {
    if constexpr (HOLDS) {
#pragma unroll
      for (int d = 0; d < D; d += 16) read_queries(held[d / 16], d);
    }
  }
  BARACUDA_D void read_queries(u32 (&x)[4], int d) const {
    tile::Reader<64, false>(queries + d / 64 * (ROWS * 64) + row0 * 64).read(x, 0, d % 64);
  }

  BARACUDA_D void scores(float (&s)[KEYS / 8][4], u32 slot) const {
    if constexpr (WGMMA) {
      hold(held);
      wgmma_fence();
      if constexpr (HOLDS) group.start_scores(s, held, slot);
      else group.start_scores(s, 0, slot);
      wgmma_wait<0>();
      hold(s);
    } else {
#pragma unroll
      for (int n = 0; n < KEYS / 8; ++n) s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0.0f;
#pragma unroll
      for (int d = 0; d < D; d += 16) {
        const tile::Reader<64, true> key(ring + slot * TILE + d / 64 * (KEYS * 64));
        u32 x[4];
        if constexpr (HOLDS) memcpy(x, held[d / 16], sizeof(x));
        else read_queries(x, d);
#pragma unroll
        for (int n = 0; n < KEYS / 8; n += 2) {
          u32 y[4];
          key.read(y, 8 * n, d % 64);
          mma_m16n8k16<T>(s[n], x, {y[0], y[1]});
          mma_m16n8k16<T>(s[n + 1], x, {y[2], y[3]});
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

}  // namespace attention
}  // namespace baracuda
