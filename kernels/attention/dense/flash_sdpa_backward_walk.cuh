#pragma once
// flash_sdpa_backward_walk    the steps of a block of keys in the tensor-core kernels of the backward, and its turns at
//                             dq.
#include "attention/block_turns.cuh"
#include "attention/ragged.cuh"
#include <baracuda/turns.cuh>

namespace baracuda {
namespace attention {

// Address of row `row` of head (b, h).
template <class T> BARACUDA_D T* rows_of(const void* x, const i64 (&stride)[3], u32 b, u32 h, i64 row) {
  return const_cast<T*>(static_cast<const T*>(x)) + b * stride[0] + h * stride[1] + row * stride[2];
}

// A block's step: a tile of queries (at) and a query head of the group; the head changes fastest.
struct Walk {
  int at;
  u32 head;
  BARACUDA_D void step(u32 group) {
    head = head + 1 == group ? 0 : head + 1;
    if (head == 0) --at;
  }
  BARACUDA_D void step(u32 group, const KeyTile&) { step(group); }
  BARACUDA_D void step(u32 group, const RisingTile& tile) {
    head = head + 1 == group ? 0 : head + 1;
    if (head == 0) at += tile.up ? 1 : -1;
  }
};
// Address of row `row` of the step's tile of queries in q or dy.
template <class T, int QUERIES, class P>
BARACUDA_D const T* query_rows(const P& p, const void* x, const i64 (&stride)[3], const KeyTile& key, const Walk& step,
                               int row = 0) {
  const i64 q0 = static_cast<i64>(step.at) * QUERIES;
  return rows_of<T>(x, stride, key.b, key.kv * p.group + step.head, key.of.query_row + q0 + row);
}
// Address of row `row` of a tile of keys in k, v, dk or dv.
template <class T, int KEYS>
BARACUDA_D T* key_rows(const void* x, const i64 (&stride)[3], const KeyTile& key, int row = 0) {
  return rows_of<T>(x, stride, key.b, key.kv, key.of.key_row + static_cast<i64>(key.tile) * KEYS + row);
}
// Rows that the step's tile of queries has.
template <int QUERIES> BARACUDA_D int rows_at(const KeyTile& key, const Walk& step) {
  return inside<QUERIES>(key.of.query_len, static_cast<i64>(step.at) * QUERIES);
}
// Moves a walk forward to the first step whose tile of scores has a set block of the pattern.
template <int QUERIES, int KEYS, class Where, class P>
BARACUDA_D void skip_unset(const P& p, const KeyTile& key, Search& search, Walk& walk) {
  using Blocks = BlocksOf<Where, P>;
  if constexpr (!Blocks::every) {
    const int group = p.group, from = (key.last - walk.at) * group + static_cast<int>(walk.head);
    const int step = search.from(from, (key.last - key.first + 1) * group, [&](int n) {
      const Blocks blocks(p, key.b, key.kv * p.group + n % group);
      return blocks.any((key.last - n / group) * QUERIES, QUERIES, key.tile * KEYS, KEYS);
    });
    walk = {key.last - step / group, static_cast<u32>(step % group)};
  }
}
// Index of the step's tile of queries among those of all heads.
template <class P> BARACUDA_D u32 tile_at(const P& p, const KeyTile& key, const Walk& step) {
  const u32 row_head = key.batch(p) * p.num_heads + key.kv * p.group + step.head;
  return row_head * static_cast<u32>(p.tiles) + static_cast<u32>(key.of.before) + step.at;
}
// The counter of turns for dq at that step; the ticket counter stands before all of them.
template <class P> BARACUDA_D u32* counter_at(const P& p, const KeyTile& key, const Walk& step) {
  return static_cast<u32*>(p.turns) + 1 + tile_at(p, key, step);
}

// This block's turn at that step: how many blocks add to that tile of dq before it.
template <int QUERIES, int KEYS, class P> BARACUDA_D u32 turn_at(const P& p, const KeyTile& key, const Walk& step) {
  return key.tile - static_cast<u32>(key.of.template first_tile<QUERIES, KEYS>(p, step.at));
}
template <int QUERIES, int KEYS, class P> BARACUDA_D u32 turn_at(const P& p, const RisingTile& key, const Walk& step) {
  if (key.up) return static_cast<u32>(key.of.template end_tile<QUERIES, KEYS>(p, step.at)) - 1 - key.tile;
  return turn_at<QUERIES, KEYS>(p, static_cast<const KeyTile&>(key), step);
}

// The same where a block mask may leave tiles of keys out; 0 where blocks of keys do not add to dq.
template <int QUERIES, int KEYS, class Where, class P, class Tile>
BARACUDA_D u32 turn_among(const P& p, const Tile& key, const Walk& step) {
  using Blocks = BlocksOf<Where, P>;
  if constexpr (!Blocks::sums_dq) return 0;
  else if constexpr (Blocks::every) return turn_at<QUERIES, KEYS>(p, key, step);
  else return block_turns(p, key.b, key.kv * p.group + step.head, step.at)[key.tile];
}

// Waits for that turn, and passes it on to the next block; by one thread.
template <int QUERIES, int KEYS, class P>
BARACUDA_D void await_turn_at(const P& p, const KeyTile& key, const Walk& step) {
  await_turn(counter_at(p, key, step), turn_at<QUERIES, KEYS>(p, key, step));
}
template <int QUERIES, int KEYS, class P>
BARACUDA_D void pass_turn_at(const P& p, const KeyTile& key, const Walk& step) {
  pass_turn(counter_at(p, key, step), turn_at<QUERIES, KEYS>(p, key, step) + 1);
}

}  // namespace attention
}  // namespace baracuda
