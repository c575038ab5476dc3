#pragma once
// byte_tile  a tile of a product of elements of 8 bits by a block of eight warps on tensor cores (mma.sync): the schedule,
//            with an instruction MMA.
//
// The tile is SIZE x SIZE, of which a warp has 32 columns, and 64 rows or 16. Slices of 128 of k go through a ring of
// three stages in shared memory, [row of a or column of b][k], whatever the operands' strides. What accumulators are
// multiplied by and added to, and when, is the product's: gemm/mma_fp8.cuh, quant_gemm/int8_tile.cuh.
//
// MMA has Sum, what products are added to, and Right<NT>: made from the fragments of 8 NT columns over 32 of k, it adds
// their products with 16 rows by multiply(acc, fragment of the rows).
#include "gemm/copy_ring.cuh"
#include "gemm/lines.cuh"
#include "gemm/warp_tile.cuh"

namespace baracuda::gemm {

template <class MMA, int SIZE> struct ByteTile : EightWarps<SIZE> {
  using Warps = EightWarps<SIZE>;
  using Warps::MT, Warps::NT, Warps::warp_row, Warps::warp_col;
  static constexpr int threads = byte_tile_threads, depth = byte_tile_depth, stages = byte_tile_stages;
  static constexpr int steps = depth / 32;
  static constexpr int operand = SIZE * depth, stage_bytes = 2 * operand;
  using Operand = Lines<u8, SIZE, depth, threads>;
  using Accumulator = typename MMA::Sum[MT][NT][4];

  // What a warp reads of a stage.
  struct Slice {
    Fragments<u8, true, true, SIZE, depth> left;
    Fragments<u8, false, true, SIZE, depth> right;
    u32 offset;  // of the stage, in bytes

    BARACUDA_D explicit Slice(u8* ring) : left(ring, warp_row()), right(ring + operand, warp_col()), offset(0) {}
    // Adds the products over the 32 of k number `step`.
    BARACUDA_D void multiply(Accumulator& acc, int step) const {
      u32 fragments[NT][2];
      read_right(fragments, right, step, offset);
      const typename MMA::template Right<NT> columns(fragments);
#pragma unroll
      for (int m = 0; m < MT; ++m) {
        u32 rows[4];
        left.read(rows, 16 * m, step, offset);
        columns.multiply(acc[m], rows);
      }
    }
  };

  // Calls multiply(slice, s) for the slices of k, in their order. On return the ring is free.
  template <class Multiply>
  static BARACUDA_D void each_slice(u8* ring, Operand a, Operand b, i64 k, const Multiply& multiply) {
    Slice slice(ring);
    for_slices<stages>(
        static_cast<int>(div_up(k, depth)),
        [&](int stage, int s) {
          const i64 left = k - static_cast<i64>(s) * depth;
          a.copy(ring + stage * stage_bytes, left);
          b.copy(ring + stage * stage_bytes + operand, left);
        },
        [&](int stage, int s) {
          slice.offset = static_cast<u32>(stage * stage_bytes);
          multiply(slice, s);
        });
  }

  // Calls sink(row, column, sums) for every eight columns of the tile's rows, through the ring's memory, of which each
  // warp has its own part.
  template <class S, class Sink> static BARACUDA_D void put(u8* ring, const S (&acc)[MT][NT][4], const Sink& sink) {
    put_warp_tile(ring, acc,
                  [&](int row, int column, const auto& sum) { sink(warp_row() + row, warp_col() + column, sum); });
  }
};

}  // namespace baracuda::gemm
