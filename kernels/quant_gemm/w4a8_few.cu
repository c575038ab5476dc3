// w4a8_few   products of at most 16 rows of int8 by weights of 4 bits: quant_gemm/w4a8.cuh. What takes time is reading the
//            weights once, of which every lane has several 16-byte accesses in flight.
//
// A block of eight warps takes 32 rows of weights (16 where FINE), the left operand of mma.sync, by 8 NT rows of x. In a
// round warp w has chunk w of eight chunks of 128 of k; which k stands in which place of a fragment is free as long as both
// operands agree. Sums of chunks meet in shared memory, where a thread adds those of its outputs in the order of k. FINE:
// groups are not whole chunks: a chunk is four pieces of 32 of k, with sums and scales of their own.
#include "quant_gemm/w4a8.cuh"
#include <baracuda/mma_int8.cuh>
#include <baracuda/reduce.cuh>

namespace baracuda {

constexpr int w4a8_warps = 8, w4a8_chunk = 128;

// What a lane reads of the weights of a chunk, zero points and scales as bits: nothing waits for them a round ahead.
template <int MT, int PIECES> struct W4A8Chunk {
  u32 w[MT][2][4], zero[MT][2][PIECES];
  u32 scale[MT * PIECES / 2];  // of column lane + 32 i of those of all pieces
};

template <class T, int NT, bool FINE> BARACUDA_D void w4a8_few(const W4A8Params& p) {
  constexpr int warps = w4a8_warps, MT = FINE ? 1 : 2, columns = 16 * MT, rows = 8 * NT, pieces = FINE ? 4 : 1;
  constexpr int threads = warps * warp_size, pitch = columns + 4;  // which keeps a warp's stores off each other's banks
  constexpr int outputs = rows * columns, own = (outputs + threads - 1) / threads, depth = w4a8_chunk / pieces;
  using Chunk = W4A8Chunk<MT, pieces>;
  __shared__ int partials[warps * pieces][rows][pitch];
  __shared__ float by[warps * pieces][columns];
  const i64 blocks = div_up(p.n, columns), n0 = blockIdx.x % blocks * columns, batch = blockIdx.x / blocks;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / warp_size, lane = lane_id(), g = lane / 4,
            t = lane % 4;
  const GroupsOfRows<W4A8Params> groups(p, batch);
  const Nibbles nibbles(p.is_signed);
  const u32 k = static_cast<u32>(p.k), group = static_cast<u32>(p.group);
  const int chunks = static_cast<int>(div_up(p.k, w4a8_chunk)), rounds = div_up(chunks, warps);
  const bool single = p.groups == 1;
  // Of rows that do not exist others are read, whose sums go nowhere.
  const auto row_of = [&](int r) { return min(n0 + r, p.n - 1); };
  const u8 *codes[MT][2], *x[NT];
#pragma unroll
  for (int i = 0; i < MT; ++i)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      codes[i][half] =
          static_cast<const u8*>(p.codes) + batch * p.code_steps[0] + row_of(16 * i + 8 * half + g) * p.code_steps[1];
    }
#pragma unroll
  for (int i = 0; i < NT; ++i) {
    x[i] = static_cast<const u8*>(p.x) + batch * p.x_steps[0] + min<i64>(8 * i + g, p.m - 1) * p.x_steps[1];
  }
  constexpr int bytes = 16 / pieces;  // of codes that a lane reads of a piece, and of x twice as many
  const auto load_chunk = [&](Chunk& to, int chunk) {
    const i64 begin = i64(chunk) * w4a8_chunk;
    u32 of[pieces], left = static_cast<u32>(begin) % group;  // groups of the pieces, and what is left of one
    of[0] = static_cast<u32>(begin) / group;
#pragma unroll
    for (int piece = 1; piece < pieces; ++piece) {
      left += depth;
      of[piece] = of[piece - 1] + (left >= group), left = left >= group ? left - group : left;
    }
#pragma unroll
    for (int piece = 0; piece < pieces; ++piece) of[piece] = min(of[piece], static_cast<u32>(p.groups) - 1);
#pragma unroll
    for (int piece = 0; piece < pieces; ++piece) {
      const i64 at = (begin + piece * depth) / 2 + bytes * t, left = p.k / 2 - at;
#pragma unroll
      for (int i = 0; i < MT; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          load_row<bytes>(&to.w[i][half][4 / pieces * piece], codes[i][half] + at, 1, left, p.whole);
          to.zero[i][half][piece] = groups.zero_bits(row_of(16 * i + 8 * half + g), of[piece]);
        }
    }
#pragma unroll
    for (int i = 0; i < MT * pieces / 2; ++i) {
      const int place = lane + warp_size * i;
      constexpr int span = warp_size / columns;  // pieces in a row of lanes
      const u32 group_of = span == 2 && lane >= columns ? of[(i * span + 1) % pieces] : of[i * span];
      to.scale[i] = number_bits(p.scales, p.scale_code, groups.scale_place(row_of(place % columns), group_of));
    }
  };
  const auto load_x = [&](u32(&to)[NT][8], int chunk) {
    constexpr int each = 2 * bytes < 16 ? 2 * bytes : 16;
#pragma unroll
    for (int piece = 0; piece < pieces; ++piece)
#pragma unroll
      for (int j = 0; j < 2 * bytes; j += each) {
        const i64 at = i64(chunk) * w4a8_chunk + piece * depth + 2 * bytes * t + j;
#pragma unroll
        for (int i = 0; i < NT; ++i) {
          load_row<each>(&to[i][8 / pieces * piece + j / 4], x[i] + at * p.x_steps[2], p.x_steps[2], p.k - at, p.wide);
        }
      }
  };
  int acc[MT][NT][4] = {};
  const auto put_sums = [&](int piece) {
#pragma unroll
    for (int i = 0; i < MT; ++i)
#pragma unroll
      for (int j = 0; j < NT; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          partials[warp * pieces + piece][8 * j + 2 * t + e % 2][16 * i + g + e / 2 * 8] = acc[i][j][e];
          acc[i][j][e] = 0;
        }
  };
  int of_group[own] = {};
  float total[own] = {};
  // Adds the pieces of a round, or of a single group's all rounds, to the thread's outputs, in the order of k.
  const int all = static_cast<int>(div_up(p.k, depth)),
            in_group = single ? warps * pieces : static_cast<int>(group / depth);
  const auto add_round = [&](int round) {
    constexpr int flight = 8;  // pieces that are read together
    const int first = round * warps * pieces, count = single ? warps * pieces : min(warps * pieces, all - first);
    const int begun = single ? 0 : first % in_group;  // pieces of the group that earlier rounds had
#pragma unroll
    for (int i = 0; i < own; ++i) {
      const int place = thread + threads * i, row = place / columns, column = place % columns;
      if (row >= rows || row >= p.m) continue;
      int left = in_group - begun;
#pragma unroll 1
      for (int u = 0; u < count; u += flight) {
        int partial[flight];
        float scale[flight];
#pragma unroll
        for (int b = 0; b < flight; ++b) partial[b] = partials[u + b][row][column], scale[b] = by[u + b][column];
#pragma unroll
        for (int b = 0; b < flight; ++b) {
          if (u + b >= count) break;
          of_group[i] += partial[b];
          if (--left != 0) continue;
          total[i] = with_group(total[i], of_group[i], scale[b]);
          of_group[i] = 0, left = in_group;
        }
      }
    }
  };
  Chunk next;
  if (rounds > 0) load_chunk(next, warp);
#pragma unroll 1
  for (int round = 0; round < rounds; ++round) {
    // Read x, and codes of the next round.
    const Chunk now = next;
    const bool last = round + 1 == rounds;
    u32 of_x[NT][8];
    load_x(of_x, round * warps + warp);
    if (!last) load_chunk(next, (round + 1) * warps + warp);
    // Multiply.
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      constexpr int each = FINE ? 1 : 4;  // steps of a piece
      u32 right[NT][2];                   // the codes of k 0, 2, 4, 6 of a lane's eight, and of the others
#pragma unroll
      for (int j = 0; j < NT; ++j) {
        right[j][0] = __byte_perm(of_x[j][2 * step], of_x[j][2 * step + 1], 0x6420);
        right[j][1] = __byte_perm(of_x[j][2 * step], of_x[j][2 * step + 1], 0x7531);
      }
#pragma unroll
      for (int i = 0; i < MT; ++i) {
        const u32 low = now.w[i][0][step], high = now.w[i][1][step];
        const u32 zero_low = groups.zero_of(now.zero[i][0][step / each]);
        const u32 zero_high = groups.zero_of(now.zero[i][1][step / each]);
        const u32 left[4] = {nibbles(low, zero_low), nibbles(high, zero_high), nibbles(low >> 4, zero_low),
                             nibbles(high >> 4, zero_high)};
#pragma unroll
        for (int j = 0; j < NT; ++j) mma_int8<i8, i8>(acc[i][j], left, right[j]);
      }
      if constexpr (FINE) put_sums(step);
    }
    if (single && !last) continue;
    // Exchange the warps' sums and scales, and add them.
    if constexpr (!FINE) put_sums(0);
    with_number(p.scale_code, [&](const auto& number) {
#pragma unroll
      for (int i = 0; i < MT * pieces / 2; ++i) {
        const int place = lane + warp_size * i;
        by[warp * pieces + place / columns][place % columns] = number(now.scale[i]);
      }
    });
    __syncthreads();
    add_round(round);
    __syncthreads();
  }
  // Store.
  const W4A8Output<W4A8Params> output{p, batch};
#pragma unroll
  for (int i = 0; i < own; ++i) {
    const int place = thread + threads * i;
    const i64 m = place / columns, n = n0 + place % columns;
    if (m >= p.m || n >= p.n) continue;
    *output.template place<T>(m, n) = from_acc<T>(output.template value<T>(total[i], output.scale(m), n));
  }
}

}  // namespace baracuda
