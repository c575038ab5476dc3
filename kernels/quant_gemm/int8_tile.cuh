#pragma once
// int8_tile  the sums of a tile of a product of integers of 8 bits by a block of eight warps on tensor cores (mma.sync).
//
// The tile is SIZE x SIZE, of which a warp has 32 columns, and 64 rows or 16. Slices of 128 of k go through a ring of
// three stages in shared memory, [row of a or column of b][k], whatever the operands' strides. Sums are kept in 32 bits,
// exactly; of groups of k they are scaled and added in float, in the order of k; and LONG ones, of which 32 bits would
// not hold all, go to sums of 64 bits every 32768 terms.
#include "gemm/mma_fp8.cuh"
#include "quant_gemm/epilogue.cuh"
#include <baracuda/mma_int8.cuh>

namespace baracuda::gemm {

template <class TA, class TB, IntGemm KIND, bool LONG, int SIZE> struct Int8Tile {
  static constexpr int threads = byte_tile_threads, depth = byte_tile_depth, stages = byte_tile_stages;
  static constexpr int warp_rows = SIZE == 128 ? 64 : 16, warp_cols = 32, side = SIZE / warp_cols;
  static constexpr int MT = warp_rows / 16, NT = warp_cols / 8;
  static constexpr int operand = SIZE * depth, stage = 2 * operand;  // bytes
  static constexpr int held = 256;                                   // slices whose sums are sure to fit 32 bits
  using Operand = Lines<SIZE, threads>;
  using Sum = conditional<KIND == IntGemm::grouped, float, conditional<LONG, i64, int>>;

  Sum sums[MT][NT][4];

  BARACUDA_D Int8Tile() { clear_sums(sums); }

  static BARACUDA_D int warp_row() { return static_cast<int>(threadIdx.x) / warp_size / side * warp_rows; }
  static BARACUDA_D int warp_col() { return static_cast<int>(threadIdx.x) / warp_size % side * warp_cols; }

  // The sums over k of p.k; m0, n0: the tile's first row and column. On return the ring is free.
  template <class P, class E>
  BARACUDA_D void add(u8* ring, Operand a, Operand b, const P& p, const E& epilogue, i64 m0, i64 n0) {
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
    const i64 row = m0 + warp_row() + lane_id() / 4, column = n0 + warp_col() + lane_id() % 4 * 2;
    int part[MT][NT][4];
    if constexpr (!is_same<Sum, int>) clear_sums(part);
    i64 group = 0;
    int now = 0;  // the stage that is read
#pragma unroll 1
    for (int s = 0; s < slices; ++s) {
      cp_async_wait<stages - 2>();
      __syncthreads();  // the slice is there, and all warps are done with the one before, whose stage is filled again
      fetch(now == 0 ? stages - 1 : now - 1, s + stages - 1);
      const u32 offset = static_cast<u32>(now * stage);
      if constexpr (is_same<Sum, int>) {
#pragma unroll
        for (int step = 0; step < depth / 32; ++step) multiply(sums, left, right, step, offset);
      } else if constexpr (LONG) {
#pragma unroll
        for (int step = 0; step < depth / 32; ++step) multiply(part, left, right, step, offset);
        if ((s + 1) % held == 0 || s + 1 == slices) drain(part);
      } else {
#pragma unroll 1
        for (int step = 0; step < depth / 32; ++step) {
          multiply(part, left, right, step, offset);
          if ((step + 1) * 32 % p.group != 0 || group == p.groups) continue;
          drain(part, p, epilogue, row, column, group);
          ++group;
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
  static BARACUDA_D void multiply(int (&x)[MT][NT][4], const Left& left, const Right& right, int step, u32 offset) {
    u32 fb[NT][2];
    read_right(fb, right, step, offset);
#pragma unroll
    for (int m = 0; m < MT; ++m) {
      u32 fa[4];
      left.read(fa, 16 * m, step, offset);
#pragma unroll
      for (int n = 0; n < NT; ++n) mma_int8<TA, TB>(x[m][n], fa, fb[n]);
    }
  }

  BARACUDA_D void drain(int (&part)[MT][NT][4]) {
#pragma unroll
    for (int m = 0; m < MT; ++m)
#pragma unroll
      for (int n = 0; n < NT; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) sums[m][n][e] += part[m][n][e];
    clear_sums(part);
  }
  // Of group g: row, column are the thread's first ones.
  template <class P, class E>
  BARACUDA_D void drain(int (&part)[MT][NT][4], const P& p, const E& epilogue, i64 row, i64 column, i64 g) {
    float by[NT][2];
    const auto at = [&](int n, int e) { return min(column + 8 * n + e, p.n - 1); };
#pragma unroll
    for (int n = 0; n < NT; ++n) by[n][0] = epilogue.scale_b(g, at(n, 0)), by[n][1] = epilogue.scale_b(g, at(n, 1));
    const i64 terms = min(p.group, p.k - g * p.group);
#pragma unroll
    for (int m = 0; m < MT; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const i64 line = min(row + 16 * m + 8 * half, p.m - 1);
        const float scale = epilogue.scale_a(line, g);
#pragma unroll
        for (int n = 0; n < NT; ++n)
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            const int x = part[m][n][2 * half + e];
            const float s = epilogue.centres() ? static_cast<float>(epilogue.centred(x, line, at(n, e), g, terms))
                                               : static_cast<float>(x);
            float& sum = sums[m][n][2 * half + e];
            sum = math::fma(s, scale * by[n][e], sum);
          }
      }
    clear_sums(part);
  }
};

}  // namespace baracuda::gemm
