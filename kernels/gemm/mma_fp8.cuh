#pragma once
// mma_fp8    the sums of a tile of a product of fp8 on tensor cores (mma.sync), in float: gemm/byte_tile.cuh.
//
// As in gemm/wgmma_fp8.cuh the products of a slice are one chain from zero, in the order of k, and this partial sum is
// added to the accumulator by one fused multiply-add with what its block is scaled by: bits depend on k alone.
#include "gemm/block_scales.cuh"
#include "gemm/byte_tile.cuh"
#include <baracuda/mma_fp8.cuh>

namespace baracuda::gemm {

// Products of two operands of one element T, which tensor cores have.
template <class T> struct Fp8WarpMma {
  using Sum = float;
  template <int NT> struct Right {
    const u32 (&fragments)[NT][2];
    BARACUDA_D explicit Right(const u32 (&fragments)[NT][2]) : fragments(fragments) {}
    BARACUDA_D void multiply(float (&acc)[NT][4], const u32 (&rows)[4]) const {
#pragma unroll
      for (int n = 0; n < NT; ++n) mma_m16n8k32<T>(acc[n], rows, fragments[n]);
    }
  };
};
// Products of any two, as those of f16.
template <class TA, class TB> struct WidenedFp8WarpMma {
  using Sum = float;
  template <int NT> struct Right {
    u32 wide[NT][2][2];
    BARACUDA_D explicit Right(const u32 (&fragments)[NT][2]) {
#pragma unroll
      for (int n = 0; n < NT; ++n) widen_right<TB>(wide[n], fragments[n]);
    }
    BARACUDA_D void multiply(float (&acc)[NT][4], const u32 (&rows)[4]) const {
      u32 wide_rows[2][4];
      widen_left<TA>(wide_rows, rows);
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int n = 0; n < NT; ++n) mma_m16n8k16<f16>(acc[n], wide_rows[half], wide[n][half]);
    }
  };
};

// NATIVE: TA and TB are one element, whose products are the tensor cores' own; else they are made of f16.
template <class TA, class TB, bool NATIVE, int SIZE>
struct Fp8Tile : ByteTile<conditional<NATIVE, Fp8WarpMma<TA>, WidenedFp8WarpMma<TA, TB>>, SIZE> {
  static_assert(!NATIVE || is_same<TA, TB>);
  using Base = ByteTile<conditional<NATIVE, Fp8WarpMma<TA>, WidenedFp8WarpMma<TA, TB>>, SIZE>;
  using Base::MT, Base::NT;
  using Accumulator = typename Base::Accumulator;
  using Operand = typename Base::Operand;

  Accumulator acc;

  BARACUDA_D Fp8Tile() { clear_accumulators(acc); }

  // The sums over k of p.k; m0, n0: the tile's first row and column. On return the ring is free.
  template <class P> BARACUDA_D void add(u8* ring, Operand a, Operand b, const P& p, i64 m0, i64 n0) {
    const i64 row = m0 + Base::warp_row() + lane_id() / 4, column = n0 + Base::warp_col();
    Base::each_slice(ring, a, b, p.k, [&](const auto& slice, int s) {
      Accumulator partial;
      clear_accumulators(partial);
#pragma unroll(NATIVE ? Base::steps : 2)
      for (int step = 0; step < Base::steps; ++step) slice.multiply(partial, step);
      // Scale the partial sums and add them.
#pragma unroll
      for (int m = 0; m < MT; ++m) {
        const float2 by = BlockScales(p, row + 16 * m, column).at(s);
#pragma unroll
        for (int n = 0; n < NT; ++n) {
          float(&sum)[4] = acc[m][n];
          const float(&x)[4] = partial[m][n];
          sum[0] = math::fma(x[0], by.x, sum[0]), sum[1] = math::fma(x[1], by.x, sum[1]);
          sum[2] = math::fma(x[2], by.y, sum[2]), sum[3] = math::fma(x[3], by.y, sum[3]);
        }
      }
    });
  }
  template <class Sink> BARACUDA_D void finish(u8* ring, const Sink& sink) const { Base::put(ring, acc, sink); }
};

}  // namespace baracuda::gemm
