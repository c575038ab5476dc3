// w4a8_tile  products of int8 by weights of 4 bits in tiles, on tensor cores (mma.sync): quant_gemm/w4a8.cuh.
//
// A block of eight warps has a tile of SIZE x SIZE, of which a warp has 32 columns, and 64 rows or 16; tiles are taken in
// the order of gemm/raster.cuh. Slices of 128 of k go through a ring in shared memory, x as bytes and weights as they are
// stored, which are made bytes on the way into fragments. Scales and zero points of a group are read a group ahead.
#include "gemm/byte_tile.cuh"
#include "gemm/raster.cuh"
#include "quant_gemm/w4a8.cuh"
#include <baracuda/mma_int8.cuh>

namespace baracuda {

// What a thread copies of slices of 128 of k of EXTENT rows of weights, 64 bytes each. Pieces of 16 bytes stand where
// eight neighbouring rows have theirs in different banks.
template <int EXTENT> class PackedLines {
  static constexpr int pieces = 4, each = EXTENT * pieces / 256;
  const u8* from;
  i64 pitch;
  int lines;  // that exist
  bool whole;

 public:
  BARACUDA_D PackedLines(const u8* matrix, i64 pitch, i64 start, i64 end, bool whole)
      : from(matrix + start * pitch), pitch(pitch), lines(static_cast<int>(min<i64>(EXTENT, end - start))),
        whole(whole) {}
  static BARACUDA_D int at(int line, int piece) { return 64 * line + 16 * (piece ^ (line / 2 % pieces)); }
  // The next slice, of whose k `left` exist.
  BARACUDA_D void copy(u8* slice, i64 left) {
    const int own = static_cast<int>(threadIdx.x), bytes = static_cast<int>(min<i64>(left / 2, 64));
#pragma unroll
    for (int n = 0; n < each; ++n) {
      const int line = own / pieces + n * (256 / pieces), piece = own % pieces;
      const int there = line < lines ? min(max(bytes - 16 * piece, 0), 16) : 0;
      u8* const to = slice + at(line, piece);
      const u8* const source = from + line * pitch + 16 * piece;
      if (whole) cp_async_16_of(to, source, there);
      else store(to, load_strided<u8, 16>(source, 1, there));
    }
    from += 64;
  }
};

template <class T, int SIZE> struct W4A8Tile : EightWarps<SIZE> {
  using Warps = EightWarps<SIZE>;
  using Warps::MT, Warps::NT;
  static constexpr int depth = w4a8_tile_depth, stages = w4a8_tile_stages, stage_bytes = SIZE * (depth + depth / 2);
  const W4A8Params& p;
  const GroupsOfRows<W4A8Params> groups;
  const i64 m0, n0, batch;
  const int row, column;  // the warp's first ones in the tile
  float acc[MT][NT][4];
  int partial[MT][NT][4];  // of the group
  // Scales of the columns whose sums the thread has, and zero points of those whose weights it has; those that are read
  // ahead as bits, so that nothing waits for them.
  u32 by[NT][2], zero[NT], zero_ahead[NT];

  BARACUDA_D W4A8Tile(const W4A8Params& p, const Raster& at)
      : p(p), groups(p, at.batch), m0(at.m * SIZE), n0(at.n * SIZE), batch(at.batch), row(Warps::warp_row()),
        column(Warps::warp_col()) {
    clear_accumulators(acc), clear_accumulators(partial);
  }

  BARACUDA_D i64 column_of(int c) const { return min(n0 + column + c, p.n - 1); }
  BARACUDA_D void read_scales(i64 g) {
    if (g >= p.groups) return;
#pragma unroll
    for (int n = 0; n < NT; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e)
        by[n][e] = number_bits(p.scales, p.scale_code, groups.scale_place(column_of(8 * n + lane_id() % 4 * 2 + e), g));
  }
  BARACUDA_D void read_zeros(i64 g) {
    if (g >= p.groups) return;
#pragma unroll
    for (int n = 0; n < NT; ++n) zero_ahead[n] = groups.zero_bits(column_of(8 * n + lane_id() / 4), g);
  }

  BARACUDA_D void take_zeros() {
#pragma unroll
    for (int n = 0; n < NT; ++n) zero[n] = groups.zero_of(zero_ahead[n]);
  }
  // Scales the sums of group g and adds them, and begins the next group.
  BARACUDA_D void end_group(i64 g) {
    float scale[NT][2];
    with_number(p.scale_code, [&](const auto& number) {
#pragma unroll
      for (int n = 0; n < NT; ++n)
#pragma unroll
        for (int e = 0; e < 2; ++e) scale[n][e] = number(by[n][e]);
    });
#pragma unroll
    for (int m = 0; m < MT; ++m)
#pragma unroll
      for (int n = 0; n < NT; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          acc[m][n][e] = with_group(acc[m][n][e], partial[m][n][e], scale[n][e % 2]);
          partial[m][n][e] = 0;
        }
    take_zeros();
    read_scales(g + 1), read_zeros(g + 2);
  }

  // Adds the products over the 32 of k number `step` of a stage; weights: the warp's columns of it.
  template <class Left>
  BARACUDA_D void multiply(const Left& left, const Nibbles& nibbles, const u8* weights, int step, u32 offset) {
    const int t = lane_id() % 4, g = lane_id() / 4;
    u32 right[NT][2];
#pragma unroll
    for (int n = 0; n < NT; ++n) {
      const u8* const at = weights + PackedLines<SIZE>::at(8 * n + g, step) + 2 * t;
      const u32 word = *reinterpret_cast<const u16*>(at) | static_cast<u32>(*reinterpret_cast<const u16*>(at + 8))
                                                               << 16;
      const u32 even = nibbles(word, zero[n]), odd = nibbles(word >> 4, zero[n]);
      right[n][0] = __byte_perm(even, odd, 0x5140), right[n][1] = __byte_perm(even, odd, 0x7362);
    }
#pragma unroll
    for (int m = 0; m < MT; ++m) {
      u32 rows[4];
      left.read(rows, 16 * m, step, offset);
#pragma unroll
      for (int n = 0; n < NT; ++n) mma_int8<i8, i8>(partial[m][n], rows, right[n]);
    }
  }

  // The sums over all groups. On return the ring is free.
  BARACUDA_D void add(u8* ring) {
    const i64* const step = p.x_steps;
    gemm::Lines<u8, SIZE, depth, 256> x(static_cast<const u8*>(p.x) + batch * step[0], step[1], step[2], m0, p.m,
                                        p.wide);
    PackedLines<SIZE> codes(static_cast<const u8*>(p.codes) + batch * p.code_steps[0], p.code_steps[1], n0, p.n,
                            p.whole);
    const int slices = static_cast<int>(div_up(p.k, depth));
    const Fragments<u8, true, true, SIZE, depth> left(ring, row);
    const Nibbles nibbles(p.is_signed);
    // Steps of 32 of k that a group has; where there is one group it ends with k, whatever that is.
    const int of_group = p.groups == 1 ? slices * (depth / 32) : static_cast<int>(p.group / 32);
    int ahead = of_group;  // steps until the group ends
    i64 g = 0;
    for_slices<stages>(
        slices,
        [&](int stage, int s) {
          const i64 rest = p.k - static_cast<i64>(s) * depth;
          x.copy(ring + stage * stage_bytes, rest);
          codes.copy(ring + stage * stage_bytes + SIZE * depth, rest);
        },
        [&](int stage, int) {
          const u8* const weights = ring + stage * stage_bytes + SIZE * depth + 64 * column;
#pragma unroll
          for (int step = 0; step < depth / 32; ++step) {
            multiply(left, nibbles, weights, step, static_cast<u32>(stage * stage_bytes));
            if (--ahead != 0 || g == p.groups) continue;
            end_group(g++);
            ahead = of_group;
          }
        },
        [&] { read_scales(0), read_zeros(0), take_zeros(), read_zeros(1); });
  }

  // Writes y, eight columns at a time, through the ring's memory, of which each warp has its own part.
  BARACUDA_D void finish(u8* ring) const {
    const W4A8Output<W4A8Params> output{p, batch};
    put_warp_tile(ring, acc, [&](int own_row, int own_column, const auto& sum) {
      const i64 m = m0 + row + own_row, n = n0 + column + own_column;
      if (m < p.m && n < p.n) output.template put<T>(sum, output.scale(m), m, n);
    });
  }
};

template <class T, int SIZE> BARACUDA_D void w4a8_tile(const W4A8Params& p) {
  BARACUDA_DYNAMIC_SMEM(u8, ring);
  W4A8Tile<T, SIZE> tile(p, Raster(blockIdx.x, div_up(p.m, SIZE), div_up(p.n, SIZE)));
  tile.add(ring);
  tile.finish(ring);
}

}  // namespace baracuda
