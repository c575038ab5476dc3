// swizzle_scales   scales of blocks, [batch, rows, columns] bytes, to or from tiles of 128 x 4: tile after tile along a
//                  row of them, and within a tile row r and column c at byte 16 (r % 32) + 4 (r / 32) + c.
//
// A thread has 16 neighbouring bytes of a tile: four columns of the rows r, r + 32, r + 64, r + 96. A warp has four such
// r of eight tiles, so that it reads and writes whole sectors on both sides. What fills the tiles is 0.
#include <baracuda/reduce.cuh>
#include <baracuda/vector.cuh>

namespace baracuda {

// Calls move(byte of the word, offset) for each of four columns that exists.
template <class Move> BARACUDA_D void each_column(int left, i64 step, const Move& move) {
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    if (c < left) move(c, c * step);
  }
}

template <bool INTO> BARACUDA_D void swizzle_scales(const SwizzleScalesParams& p) {
  constexpr int rows = 32, each = swizzle_warp_rows;  // r of a tile; those of a warp
  const u32 warp = blockIdx.x * (blockDim.x / warp_size) + threadIdx.x / warp_size, lane = lane_id();
  if (warp >= p.warps) return;
  const u32 group = warp % p.groups, above = warp / p.groups, part = above % (rows / each);
  const u32 down = above / (rows / each) % p.down, batch = above / (rows / each) / p.down;
  const u32 r = part * each + lane % each, across = group * (warp_size / each) + lane / each;
  if (across >= p.across) return;
  u8* const tiled = static_cast<u8*>(p.tiled) + ((i64(batch) * p.down + down) * p.across + across) * (128 * 4) + 16 * r;
  u8* const plain = static_cast<u8*>(p.plain) + batch * p.steps[0] + i64(across) * 4 * p.steps[2];
  const int left = static_cast<int>(min<i64>(4, p.columns - i64(across) * 4));
  const bool word = p.wide && left == 4;
  u32 words[4] = {};
  if (!INTO) {
    if (p.whole) {
      const uint4 all = __ldg(reinterpret_cast<const uint4*>(tiled));
      words[0] = all.x, words[1] = all.y, words[2] = all.z, words[3] = all.w;
    } else {
#pragma unroll
      for (int i = 0; i < 16; ++i) words[i / 4] |= static_cast<u32>(tiled[i]) << (8 * (i % 4));
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const i64 row = i64(down) * 128 + 32 * i + r;
    if (row >= p.rows) continue;
    u8* const at = plain + row * p.steps[1];
    if constexpr (INTO) {
      if (word) words[i] = __ldg(reinterpret_cast<const u32*>(at));
      else each_column(left, p.steps[2], [&](int c, i64 to) { words[i] |= static_cast<u32>(at[to]) << (8 * c); });
    } else {
      if (word) *reinterpret_cast<u32*>(at) = words[i];
      else each_column(left, p.steps[2], [&](int c, i64 to) { at[to] = static_cast<u8>(words[i] >> (8 * c)); });
    }
  }
  if constexpr (INTO) {
    if (p.whole) {
      *reinterpret_cast<uint4*>(tiled) = make_uint4(words[0], words[1], words[2], words[3]);
    } else {
#pragma unroll
      for (int i = 0; i < 16; ++i) tiled[i] = static_cast<u8>(words[i / 4] >> (8 * (i % 4)));
    }
  }
}

}  // namespace baracuda
