#pragma once
// flash_sdpa_backward_server.cuh    what the kernels have in common whose blocks are two warpgroups that multiply and one that
//   serves them: the block's keys, its turns at the sums of dq, its results.
#include "attention/flash_sdpa_backward_terms.cuh"
#include <baracuda/pipeline.cuh>

namespace baracuda {
namespace attention {

// The block's tile of keys, and the first and the last tile of queries that see all of them. By one thread.
template <int QUERIES, int KEYS, class Where, class P> BARACUDA_D void take_keys(KeyTile& block, int (&clear)[2], const P& p) {
  block = Where::template key_tile<QUERIES, KEYS>(p, atomicAdd(static_cast<u32*>(p.turns), 1u));
  const i64 k0 = static_cast<i64>(block.tile) * KEYS - block.of.shift, most = numeric<int>::max();
  const i64 low = k0 + KEYS - 1 - p.right, high = min<i64>(k0 + 1 + p.left, block.of.query_len) - QUERIES;
  clear[0] = static_cast<int>(min<i64>(most, max<i64>(0, (low + QUERIES - 1) / QUERIES)));
  clear[1] = block.left < KEYS || high < 0 ? -1 : static_cast<int>(min<i64>(most, high / QUERIES));
}

// Keys and values to panels of shared memory, by all threads.
template <int KEYS, int D, int THREADS, class T, class P>
BARACUDA_D void load_keys(T* keys, T* values, Barrier& there, const KeyTile& block, const P& p) {
  const auto load = [&](T* tile, const void* from, const i64(&stride)[3], int cols, bool wide) {
    const T* const x = rows_of<T>(from, stride, block.b, block.kv, block.of.key_row + static_cast<i64>(block.tile) * KEYS);
    tile::copy_panels<KEYS, D, THREADS>(tile, x, stride[2], block.left, cols, wide);
  };
  load(keys, p.k, p.stride[1], p.d_k, p.wide & 2);
  load(values, p.v, p.stride[2], p.d_v, p.wide & 4);
  there.arrive_when_copied((p.wide & 6) == 6);
}

// A warp's turn at the sums of dq of a tile of queries: in the order of key tiles, the first of which stores, or any.
template <int QUERIES, int KEYS, int TILE, class P> struct Turn {
  u32 turn;
  u32* counter;
  float* sums;
  bool ordered, adds, begins;  // adds: by this lane

  BARACUDA_D Turn(const P& p, const KeyTile& block, const Walk& now)
      : turn(turn_at<QUERIES, KEYS>(p, block, now)),
        counter(counter_at(p, block, now)),
        sums(static_cast<float*>(p.sums) + static_cast<i64>(tile_at(p, block, now)) * TILE),
        ordered(!p.any_order),
        adds(p.dq != nullptr && lane_id() == 0),
        begins(ordered && turn == 0) {
    if (adds && ordered && !begins) await_turn(counter, turn);
    __syncwarp();
  }
  // Floats from shared memory, to the sums from `at` on; a group of bulk operations.
  BARACUDA_D void add(int at, const float* from, int floats) const {
    bulk_begin();
    if (begins) bulk_store(sums + at, from, floats * 4);
    else bulk_add(sums + at, from, floats * 4);
    bulk_commit();
  }
  BARACUDA_D void pass() const {
    if (adds && ordered) {
      bulk_wait<0>();
      pass_turn(counter, turn + 1);
    }
    __syncwarp();
  }
};

// 16 rows of a gradient, from products times a factor to panels of KEYS rows.
template <int KEYS, class T, int N> BARACUDA_D void put_rows(T* rows, const float (&x)[N][4], float factor) {
  const tile::Reader<64, false> to(rows);
#pragma unroll
  for (int n = 0; n < N; n += 2) {
    u32 pairs[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) pairs[e] = pack_pair<T>(x[n + e / 2][e % 2 * 2] * factor, x[n + e / 2][e % 2 * 2 + 1] * factor);
    to.write(pairs, 0, 8 * n % 64, n / 8 * (KEYS * 64 * sizeof(T)));
  }
}

// 64 rows of a gradient of the block's keys, from `first` on, from panels to where they are wanted; by a warpgroup.
template <int KEYS, int D, class T>
BARACUDA_D void write_rows(void* out, const i64(&stride)[3], const T* tile, const KeyTile& block, int first, int cols, bool wide) {
  if (out == nullptr) return;
  T* const to = rows_of<T>(out, stride, block.b, block.kv, block.of.key_row + static_cast<i64>(block.tile) * KEYS + first);
#pragma unroll
  for (int col = 0; col < D; col += 64) {
    tile::copy_out<64, 64, 128>(to + col, stride[2], tile + col * KEYS + first * 64, threadIdx.x % 128, block.left - first,
                                cols - col, wide);
  }
}

}  // namespace attention
}  // namespace baracuda
