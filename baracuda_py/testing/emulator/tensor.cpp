// Boxes of arrays in global memory by TMA, and clusters of blocks.
#include "grid.hpp"

namespace simt {

namespace {

#pragma pack(push, 1)
struct Map {  // as testing/recording.py encodes it
  u64 address;
  u32 mark;
  u8 rank, element, swizzle, unused;  // element: bytes
  u64 shape[5], strides[4];
  u16 box[5];
};
#pragma pack(pop)
constexpr u32 marked = 0x7ab1e0a9, piece = 16;

const Map& map_at(Thread& t, u32 line, int rank, u64 at) {
  const Map& map = *reinterpret_cast<const Map*>(at);
  if (map.mark != marked || map.rank != rank) fail(t, line, "no map of so many axes there", at);
  return map;
}

u32 bytes_of(const Map& map) {
  u32 bytes = map.element;
  for (u32 n : map.box) bytes *= n;
  return bytes;
}

// Calls f(offset in shared memory, address in global memory, bytes of the array there) for every 16 bytes of a box.
template <class F> void pieces(const Map& map, const Coordinates& from, u32 start, F f) {
  const u32 span = map.box[0] * map.element, rows = bytes_of(map) / span;
  for (u32 row = 0; row < rows; ++row) {
    u64 address = map.address;
    bool inside = true;
    for (u32 axis = 1, rest = row; axis < 5; rest /= map.box[axis++]) {
      const s64 at = static_cast<s64>(static_cast<s32>(axis < map.rank ? from.at[axis] : 0)) + rest % map.box[axis];
      inside = inside && at >= 0 && at < static_cast<s64>(map.shape[axis]);
      address += static_cast<u64>(at) * map.strides[axis - 1];
    }
    for (u32 n = 0; n < span; n += piece) {
      const s64 first = static_cast<s64>(static_cast<s32>(from.at[0])) * map.element + n;
      const s64 end = static_cast<s64>(map.shape[0]) * map.element;
      const u32 to = start + row * span + n, line = to >> 7;
      const u32 twist = map.swizzle == 128 ? line & 7 : map.swizzle == 64 ? line & 3 : map.swizzle == 32 ? line & 1 : 0;
      const s64 before = first < 0 ? -first : 0, after = first + piece > end ? first + piece - end : 0;
      f(to ^ twist << 4, address + static_cast<u64>(first), inside ? before : piece, inside ? after : 0);
    }
  }
}

}  // namespace

void tensor_load(Thread& t, u32 line, int rank, u64 map, Coordinates at, u32 to, u32 barrier, u32 blocks) {
  map_at(t, line, rank, map);
  if (to % 128) fail(t, line, "a box that does not start at a multiple of 128 bytes", to);
  if (blocks >> t.block->cluster->blocks.size()) fail(t, line, "no such block in the cluster", blocks);
  t.block->late.push_back({static_cast<Fiber*>(&t), {}, barrier, line, {map, at}, to,
                           blocks == 0 ? 1u << t.block->rank : blocks});
}

void land_box(const Late& late) {
  Thread& t = *late.fiber;
  const Map& map = *reinterpret_cast<const Map*>(late.box.map);
  for (u32 rank = 0; rank < t.block->cluster->blocks.size(); ++rank) {
    if ((late.blocks >> rank & 1) == 0) continue;
    u64 address = static_cast<u64>(rank + 1) << rank_bits | late.to;
    Block& b = block_at(t, late.line, address);
    pieces(map, late.box.at, late.to, [&](u32 to, u64 from, s64 before, s64 after) {
      if (to + piece > b.size) fail(t, late.line, "a box outside shared memory", to);
      if (b.read[to / piece]) fail(t, late.line, "a box where a product of a warpgroup may still read", to);
      char* const there = b.shared + to;
      memset(there, 0, piece);
      if (before + after < piece) {
        memcpy(there + before, reinterpret_cast<const char*>(from) + before, piece - before - after);
      }
    });
    mbarrier_complete(t, late.line, b, late.barrier, bytes_of(map));
  }
}

void tensor_store(Thread& t, u32 line, int rank, u64 map, Coordinates at, u32 from) {
  map_at(t, line, rank, map);
  if (from % 128) fail(t, line, "a box that does not start at a multiple of 128 bytes", from);
  static_cast<Fiber&>(t).moves.open.push_back({0, from, 0, line, false, {map, at}});
}

void store_box(Fiber& f, const Move& move) {
  const Map& map = *reinterpret_cast<const Map*>(move.box.map);
  pieces(map, move.box.at, move.from, [&](u32 from, u64 to, s64 before, s64 after) {
    if (from + piece > f.block->size) fail(f, move.line, "a box outside shared memory", from);
    published(f, move.line, from / piece);
    if (before + after >= piece) return;
    memcpy(reinterpret_cast<char*>(to) + before, f.block->shared + from + before, piece - before - after);
  });
}

// ---- clusters ----

u32 mapa(Thread& t, u32 line, u32 address, u32 rank) {
  if (rank >= t.block->cluster->blocks.size()) fail(t, line, "no such block in the cluster", rank);
  return rank + 1 << rank_bits | (address & ((1 << rank_bits) - 1));
}

void cluster_release(Cluster& c) {
  u32 left = 0;
  for (const auto& b : c.blocks) left += b->left;
  if (c.come == 0 || c.come < left) return;
  c.come = 0, ++c.phase, ++events;
}
void cluster_arrive(Thread& t, u32) {
  Cluster& c = *t.block->cluster;
  static_cast<Fiber&>(t).phase = c.phase;
  ++c.come, ++events;
  cluster_release(c);
}
void cluster_wait(Thread& t, u32 line) {
  while (static_cast<Fiber&>(t).phase == t.block->cluster->phase) pause(t, line);
}

}  // namespace simt
