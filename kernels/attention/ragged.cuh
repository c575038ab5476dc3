#pragma once
// ragged     packed sequences of any lengths: where each begins, and the lists of tiles that blocks take.
//
// Bounds cu_seqlens[0 … batch] are clamped to [0, total] and to the largest bound before them, so whatever they hold,
// sequences are disjoint and in order. The rows before the first and after the last sequence make two pieces more,
// which see no keys (or queries) of the other side; so every row belongs to exactly one piece. A list has room for as
// many tiles as any bounds may need; entries past the end have no rows. One entry more begins with a 0, a counter for
// blocks that draw tickets.
//
// ragged_tiles (one block for each list) writes the lists, so the kernels that walk the tiles need no search and the
// host no lengths. The order of a list changes no sum; in an `ascending` list, tiles of one sequence stay in order.
#include "attention/attention.cuh"

namespace baracuda {
namespace attention {

struct alignas(16) RaggedTile {
  i32 row, rows;         // index of its first row among all, and its number of rows; 0: no tile
  i32 first, len;        // index of its first row in its sequence, and the sequence's length
  i32 other, other_len;  // of the other side: the sequence's first row among all, and its length
  i32 b, before;         // the sequence; tiles of queries of the sequences before it
};

// How blocks find their work in packed sequences: operands are [rows, heads, d], strides (0, head, row).
struct Ragged {
  static constexpr bool surplus = true;
  template <class P, int KEYS> using Keys = KeyRows<P>;
  template <int ROWS, class P> static BARACUDA_D Work find(const P& p) {
    return find<ROWS>(p, blockIdx.x, gridDim.x / static_cast<u32>(p.tiles));
  }
  template <int ROWS, class P> static BARACUDA_D Work find(const P& p, u32 block, u32 heads) {
    const Place place = Place::together(block, static_cast<u32>(p.tiles), heads, p.chunk);
    const RaggedTile t = static_cast<const RaggedTile*>(p.list)[place.tile];
    const u32 h = place.head;
    const i64 shift = p.bottom_right ? t.other_len - t.len : 0;
    return {static_cast<u32>(t.b),  h, h / p.group, t.row, t.other, t.first, t.len, t.other_len, shift,
            h * p.query_len + t.row};
  }
  // Tiles of keys are listed in p.list, tiles of queries in p.second.
  template <int QUERIES, int KEYS, class P> static BARACUDA_D KeyTile key_tile(const P& p, u32 ticket) {
    return key_tile<QUERIES, KEYS>(p, ticket, gridDim.x / static_cast<u32>(p.key_tiles));
  }
  template <int QUERIES, int KEYS, class P> static BARACUDA_D KeyTile key_tile(const P& p, u32 ticket, u32 heads) {
    const Place place = Place::together(ticket, static_cast<u32>(p.key_tiles), heads, static_cast<u32>(p.chunk));
    const RaggedTile t = static_cast<const RaggedTile*>(p.list)[place.tile];
    return KeyTile::make<QUERIES, KEYS>(p, of_keys(p, t), static_cast<u32>(t.first / KEYS), static_cast<u32>(t.b),
                                        place.head);
  }
  // A sequence's tiles are listed in ascending order; a tile that walks up is read from the other end. The same tiles
  // walk up as in a dense batch, so that the bits are the same.
  template <int QUERIES, int KEYS, class P>
  static BARACUDA_D RisingTile rising_tile(const P& p, u32 ticket, u32 heads) {
    const auto [place, early] = RisingPlace::of(p, ticket, 1, heads);
    const RaggedTile t = static_cast<const RaggedTile*>(p.list)[place.tile];
    const bool up = early && t.other_len <= p.rising_len;
    const u32 tile = static_cast<u32>(t.first / KEYS), last = static_cast<u32>((t.len - 1) / KEYS);
    return {KeyTile::make<QUERIES, KEYS>(p, of_keys(p, t), up ? last - tile : tile, static_cast<u32>(t.b), place.head),
            up};
  }
  template <class P> static BARACUDA_D Sequence of_keys(const P& p, const RaggedTile& t) {
    return {t.other, t.row - t.first, t.other_len, t.len, p.bottom_right ? t.len - t.other_len : 0, t.before};
  }
  template <int QUERIES, class P> static BARACUDA_D QueryTile query_tile(const P& p, i64 tile) {
    if (tile >= p.tiles) return {{0, 0, 0, 0, 0, 0}, 0};
    const RaggedTile t = static_cast<const RaggedTile*>(p.second)[tile];
    const Sequence of{t.row - t.first, t.other, t.len, t.other_len, p.bottom_right ? t.other_len - t.len : 0, t.before};
    return {of, t.first / QUERIES};
  }
};

constexpr int ragged_threads = 1024;
constexpr int ragged_levels = 64, ragged_segments = 64;
enum RaggedSide { of_queries, of_keys };
enum RaggedOrder { longest_first, ascending, as_they_stand };

// The level of a tile's length (in tiles of the other side): one of 64, four for each power of 2.
BARACUDA_D int ragged_level(i64 length) {
  const u32 n = static_cast<u32>(length);
  if (n < 8) return static_cast<int>(n);
  const int octave = 31 - __clz(n);
  return min(ragged_levels - 1, 4 * octave - 4 + static_cast<int>(n >> (octave - 2) & 3));
}

// The position of each lane's tile within its bucket, in the order of the lanes. Called by all lanes of the warp.
BARACUDA_D i32 ragged_place(i32* next, int bucket, bool there) {
  const u32 alike = __match_any_sync(full_warp, there ? bucket : -1);
  const int leader = __ffs(alike) - 1;
  i32 first = 0;
  if (there && lane_id() == leader) first = atomicAdd(&next[bucket], __popc(alike));
  return __shfl_sync(full_warp, first, leader) + __popc(alike & ((1u << lane_id()) - 1));
}

// Writes starts[0 … batch + 2] of a side's pieces: 0, a running Op over value(0 … batch) clamped to `total`, and total.
template <class Op, class Value>
BARACUDA_D void ragged_starts(i64* starts, i64 batch, i64 total, i64* scratch, Value value) {
  if (threadIdx.x == 0) starts[0] = 0, starts[batch + 2] = total;
  i64 before = Op::template identity<i64>();
#pragma unroll 1
  for (i64 base = 0; base <= batch; base += ragged_threads) {
    const i64 i = base + threadIdx.x;
    const i64 found = Op::apply(before, block_scan<Op, ragged_threads>(value(min(i, batch)), scratch));
    if (i <= batch) starts[i + 1] = min(found, total);
    __syncthreads();
    before = starts[min(base + ragged_threads, batch + 1)];
  }
}

// Bounds of packed sequences.
struct PackedBounds {
  template <class P> static BARACUDA_D i64 bound(const P& p, int side, i64 i) {
    const void* const from = side == of_queries ? p.bounds_q : p.bounds_k;
    const i64 at = i * p.bound_stride[side];
    return p.wide_bounds >> side & 1 ? static_cast<const i64*>(from)[at] : static_cast<const i32*>(from)[at];
  }
  template <class P> static BARACUDA_D void starts(const P& p, int side, i64* starts, i64* scratch) {
    const i64 total = side == of_queries ? p.total_q : p.total_k;
    ragged_starts<Max>(starts, p.batch, total, scratch,
                       [&](i64 i) { return max<i64>(0, min(total, bound(p, side, i))); });
    if (p.status == nullptr) return;
    for (i64 i = threadIdx.x; i <= p.batch; i += ragged_threads) {
      const bool longer = i < p.batch && starts[i + 2] - starts[i + 1] > p.max_len[side];
      if (longer || bound(p, side, i) != starts[i + 1]) atomicOr(p.status, 1u);
    }
  }
};

}  // namespace attention

// Writes the lists, and before them the first rows of the pieces. longest_first: tiles of queries by the number of keys
// they see, within segments of sequences whose keys fit the L2 cache. ascending: tiles of keys, the first ones of all
// sequences of a segment before the next. as_they_stand: in the order of rows.
template <class Bounds, class P> BARACUDA_D void ragged_tiles(const P& p) {
  using namespace attention;
  __shared__ i32 next[ragged_levels * ragged_segments];
  __shared__ i64 scratch[ragged_threads / warp_size];
  __shared__ i32 sums[ragged_threads / warp_size];
  const int which = blockIdx.x, side = p.side[which], order = p.order[which];
  const i64 pieces = p.batch + 2, rows = p.tile_rows[which];
  i64* const starts[2] = {static_cast<i64*>(p.starts) + which * 3 * (pieces + 1),
                          static_cast<i64*>(p.starts) + (which * 3 + 1) * (pieces + 1)};
  i64* const before = starts[1] + pieces + 1;  // tiles of queries before a piece

#pragma unroll 1
  for (int n = 0; n < 2; ++n) Bounds::starts(p, n, starts[n], scratch);
  for (int n = threadIdx.x; n < ragged_levels * ragged_segments; n += ragged_threads) next[n] = 0;
  __syncthreads();
  const auto tiles_of = [&](int of, i64 j, i64 each) { return (starts[of][j + 1] - starts[of][j] + each - 1) / each; };
  if (order != longest_first) {
    i64 sum = 0;
#pragma unroll 1
    for (i64 base = 0; base < pieces; base += ragged_threads) {
      const i64 j = base + threadIdx.x;
      const i64 n = j < pieces ? tiles_of(of_queries, j, p.query_tile) : 0;
      const i64 to = sum + block_scan<Sum, ragged_threads>(n, scratch);
      if (j < pieces) before[j + 1] = to;
      if (j == 0) before[0] = 0;
      __syncthreads();
      sum = before[min(base + ragged_threads, pieces)];
    }
  }

  int lanes = warp_size;  // lanes that share a piece
  while (lanes > 1 && ragged_threads / lanes < pieces) lanes /= 2;
  // Calls visit(piece, tile, whether it exists), by all lanes of a warp together, a piece's tiles in ascending order.
  const auto each_tile = [&](const auto& visit) {
#pragma unroll 1
    for (i64 base = 0; base < pieces; base += ragged_threads / lanes) {
      const i64 j = min(base + static_cast<i64>(threadIdx.x) / lanes, pieces);
      const i64 count = j < pieces ? tiles_of(side, j, rows) : 0;
#pragma unroll 1
      for (i64 t = threadIdx.x % lanes; __any_sync(full_warp, t < count); t += lanes) visit(j, t, t < count);
    }
  };
  const auto bucket = [&](i64 j, i64 t) -> int {
    const int segment = static_cast<int>(min<i64>(ragged_segments - 1, starts[of_keys][j] / p.segment));
    if (order == ascending) return segment * ragged_levels + ragged_level(t);
    const i64 len = starts[of_queries][j + 1] - starts[of_queries][j];
    const i64 keys = j == 0 || j > p.batch ? 0 : starts[of_keys][j + 1] - starts[of_keys][j];
    const i64 at = t * rows + (p.bottom_right ? keys - len : 0);  // the key position of its first query
    const i64 first = max<i64>(0, at - p.left), end = min(keys, at + min(rows, len - t * rows) + p.right);
    return segment * ragged_levels + ragged_levels - 1 -
           ragged_level((max<i64>(0, end - first) + tile_keys - 1) / tile_keys);
  };

  if (order != as_they_stand) {
    each_tile([&](i64 j, i64 t, bool there) { ragged_place(next, there ? bucket(j, t) : 0, there); });
    __syncthreads();
    constexpr int EACH = ragged_levels * ragged_segments / ragged_threads;
    i32 own[EACH], sum = 0;
#pragma unroll
    for (int n = 0; n < EACH; ++n) sum += own[n] = next[threadIdx.x * EACH + n];
    i32 to = block_scan<Sum, ragged_threads>(sum, sums) - sum;
#pragma unroll
    for (int n = 0; n < EACH; ++n) next[threadIdx.x * EACH + n] = to, to += own[n];
    __syncthreads();
  }
  RaggedTile* const list = static_cast<RaggedTile*>(which == 0 ? p.list : p.second);
  i64 written = 0;
  each_tile([&](i64 j, i64 t, bool there) {
    const i64 at =
        order == as_they_stand ? before[min(j, pieces - 1)] + t : ragged_place(next, there ? bucket(j, t) : 0, there);
    if (!there) return;
    ++written;
    const bool real = j > 0 && j <= p.batch;
    const i64 row = starts[side][j] + t * rows, len = starts[side][j + 1] - starts[side][j];
    const i64 other = starts[1 - side][j], other_len = real ? starts[1 - side][j + 1] - other : 0;
    const auto narrow = [](i64 x) { return static_cast<i32>(x); };
    list[at] = {narrow(row),
                narrow(min(rows, len - t * rows)),
                narrow(t * rows),
                narrow(len),
                narrow(other),
                narrow(other_len),
                narrow(real ? j - 1 : 0),
                order == longest_first ? 0 : narrow(before[j])};
  });
  written = block_reduce<Sum, ragged_threads>(written, scratch);
  for (i64 n = written + threadIdx.x; n <= p.capacity[which]; n += ragged_threads) list[n] = {0, 0, 0, 0, 0, 0, 0, 0};
}

}  // namespace baracuda
