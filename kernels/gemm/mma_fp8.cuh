#pragma once
// mma_fp8    the sums of a tile of a product of fp8 by a block of eight warps on tensor cores (mma.sync), in float.
//
// The tile is SIZE x SIZE, of which a warp has 32 columns, and 64 rows or 16. Slices of 128 of k go through a ring of
// three stages in shared memory, [row of a or column of b][k], whatever the operands' strides. As in gemm/wgmma_fp8.cuh
// the products of a slice are one chain from zero, in the order of k, and are added to the sums by one fused multiply-add
// with what their block is scaled by: bits depend on k alone. NATIVE: TA and TB are one element, whose products are the
// tensor cores' own; else they are made of f16.
#include "gemm/block_scales.cuh"
#include "gemm/slices.cuh"
#include "gemm/warp_tile.cuh"
#include <baracuda/mma_fp8.cuh>

namespace baracuda::gemm {

// A thread's part in copying slices of 128 bytes of k of EXTENT lines, rows of a or columns of b, one after the other.
// What does not exist in memory is filled up with zeros.
template <int EXTENT, int THREADS> class Lines {
  static constexpr int DEPTH = 128, PIECE = 16, EACH = EXTENT * (DEPTH / PIECE) / THREADS;  // pieces of a thread
  const u8* from;  // the first line, at the next slice
  i64 along, k_step;
  int lines;  // that exist
  bool wide;  // every line starts 16-byte aligned, with k along memory

 public:
  // along, k_step: strides of lines and of k. Lines `start` … of `end`.
  BARACUDA_D Lines(const u8* matrix, i64 along, i64 k_step, i64 start, i64 end, bool wide)
      : from(matrix + start * along), along(along), k_step(k_step),
        lines(static_cast<int>(min<i64>(EXTENT, end - start))), wide(wide) {}

  // The next slice, of whose k `left` exist: asynchronously where lines are wide, else it is there on return.
  BARACUDA_D void copy(u8* slice, i64 left) {
    const int own = static_cast<int>(threadIdx.x), depth = static_cast<int>(min<i64>(left, DEPTH));
    if (wide) {
#pragma unroll
      for (int n = 0; n < EACH; ++n) {
        const int line = own / 8 + n * (THREADS / 8), piece = own % 8;
        const int there = line < lines ? min(max(depth - PIECE * piece, 0), PIECE) : 0;
        cp_async_16_of(slice + Twist<DEPTH>::at(line, piece), from + line * along + PIECE * piece, there);
      }
    } else {
      const bool across = along == 1;  // neighbouring threads have neighbouring lines then
#pragma unroll 1
      for (int n = own; n < EXTENT * 8; n += THREADS) {
        const int line = across ? n % EXTENT : n / 8, piece = across ? n / EXTENT : n % 8;
        const int there = line < lines ? depth - PIECE * piece : 0;
        const u8* const at = from + line * along + PIECE * piece * k_step;
        store(slice + Twist<DEPTH>::at(line, piece), load_strided<u8, PIECE>(at, k_step, there));
      }
    }
    from += DEPTH * k_step;
  }
};

template <class TA, class TB, bool NATIVE, int SIZE> struct Fp8Tile {
  static_assert(!NATIVE || is_same<TA, TB>);
  static constexpr int threads = byte_tile_threads, depth = byte_tile_depth, stages = byte_tile_stages;
  static constexpr int warp_rows = SIZE == 128 ? 64 : 16, warp_cols = 32,
                       side = SIZE / warp_cols;  // warps side by side
  static constexpr int MT = warp_rows / 16, NT = warp_cols / 8;
  static constexpr int operand = SIZE * depth, stage = 2 * operand;  // bytes
  using Operand = Lines<SIZE, threads>;

  float sums[MT][NT][4];

  BARACUDA_D Fp8Tile() { clear_sums(sums); }

  static BARACUDA_D int warp_row() { return static_cast<int>(threadIdx.x) / warp_size / side * warp_rows; }
  static BARACUDA_D int warp_col() { return static_cast<int>(threadIdx.x) / warp_size % side * warp_cols; }

  // The sums over k of p.k; m0, n0: the tile's first row and column. On return the ring is free.
  template <class P> BARACUDA_D void add(u8* ring, Operand a, Operand b, const P& p, i64 m0, i64 n0) {
    const int slices = static_cast<int>(div_up(p.k, depth));
    const auto fetch = [&](int to, int s) {
      if (s < slices) {
        const i64 left = p.k - static_cast<i64>(s) * depth;
        a.copy(ring + to * stage, left);
        b.copy(ring + to * stage + operand, left);
      }
      cp_async_commit();
    };
#pragma unroll
    for (int n = 0; n < stages - 1; ++n) fetch(n, n);
    const Fragments<u8, true, true, SIZE, depth> left(ring, warp_row());
    const Fragments<u8, false, true, SIZE, depth> right(ring + operand, warp_col());
    const i64 row = m0 + warp_row() + lane_id() / 4, column = n0 + warp_col();
    int now = 0;  // the stage that is read
#pragma unroll 1
    for (int s = 0; s < slices; ++s) {
      cp_async_wait<stages - 2>();
      __syncthreads();  // the slice is there, and all warps are done with the one before, whose stage is filled again
      fetch(now == 0 ? stages - 1 : now - 1, s + stages - 1);
      float part[MT][NT][4];
      clear_sums(part);
#pragma unroll(NATIVE ? depth / 32 : 2)
      for (int step = 0; step < depth / 32; ++step) multiply(part, left, right, step, static_cast<u32>(now * stage));
#pragma unroll
      for (int m = 0; m < MT; ++m) {
        const float2 by = BlockScales(p, row + 16 * m, column).at(s);
#pragma unroll
        for (int n = 0; n < NT; ++n) {
          float(&sum)[4] = sums[m][n];
          const float(&x)[4] = part[m][n];
          sum[0] = math::fma(x[0], by.x, sum[0]), sum[1] = math::fma(x[1], by.x, sum[1]);
          sum[2] = math::fma(x[2], by.y, sum[2]), sum[3] = math::fma(x[3], by.y, sum[3]);
        }
      }
      now = now + 1 == stages ? 0 : now + 1;
    }
    cp_async_wait<0>();
    __syncthreads();
  }

  // Calls sink(row, column, sums) for every eight columns of the tile's rows, through the ring's memory, of which each
  // warp has its own part.
  template <class Sink> BARACUDA_D void finish(u8* ring, const Sink& sink) const {
    put_sums_of_warp(ring, sums,
                     [&](int row, int column, const auto& sum) { sink(warp_row() + row, warp_col() + column, sum); });
  }

 private:
  // Adds the products over the 32 of k number `step` of the stage at byte `offset`.
  template <class Left, class Right>
  static BARACUDA_D void multiply(float (&x)[MT][NT][4], const Left& left, const Right& right, int step, u32 offset) {
    u32 fb[NT][2];
    read_right(fb, right, step, offset);
    u32 wide_b[NT][2][2];
    if constexpr (!NATIVE) {
#pragma unroll
      for (int n = 0; n < NT; ++n) widen_right<TB>(wide_b[n], fb[n]);
    }
#pragma unroll
    for (int m = 0; m < MT; ++m) {
      u32 fa[4];
      left.read(fa, 16 * m, step, offset);
      if constexpr (NATIVE) {
#pragma unroll
        for (int n = 0; n < NT; ++n) mma_m16n8k32<TA>(x[m][n], fa, fb[n]);
      } else {
        u32 wide_a[2][4];
        widen_left<TA>(wide_a, fa);
#pragma unroll
        for (int half = 0; half < 2; ++half)
#pragma unroll
          for (int n = 0; n < NT; ++n) mma_m16n8k16<f16>(x[m][n], wide_a[half], wide_b[n][half]);
      }
    }
  }
};

}  // namespace baracuda::gemm
