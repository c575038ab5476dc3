#pragma once
// int8_tile  the sums of a tile of a product of integers of 8 bits on tensor cores (mma.sync): gemm/byte_tile.cuh.
//
// Products are added in 32 bits, exactly. Sums of groups of k are scaled and added in float, in the order of k; and LONG
// ones, of which 32 bits would not hold all, go to accumulators of 64 bits every 32768 terms.
#include "gemm/byte_tile.cuh"
#include "quant_gemm/epilogue.cuh"
#include <baracuda/mma_int8.cuh>

namespace baracuda::gemm {

// Products of integers of 8 bits, each of TA and TB i8 or u8.
template <class TA, class TB> struct Int8WarpMma {
  using Sum = int;
  template <int NT> struct Right {
    const u32 (&fragments)[NT][2];
    BARACUDA_D explicit Right(const u32 (&fragments)[NT][2]) : fragments(fragments) {}
    BARACUDA_D void multiply(int (&acc)[NT][4], const u32 (&rows)[4]) const {
#pragma unroll
      for (int n = 0; n < NT; ++n) mma_int8<TA, TB>(acc[n], rows, fragments[n]);
    }
  };
};

template <class TA, class TB, IntGemm KIND, bool LONG, int SIZE> struct Int8Tile : ByteTile<Int8WarpMma<TA, TB>, SIZE> {
  using Base = ByteTile<Int8WarpMma<TA, TB>, SIZE>;
  using Base::MT, Base::NT;
  using Partial = typename Base::Accumulator;
  using Operand = typename Base::Operand;
  using Sum = conditional<KIND == IntGemm::grouped, float, conditional<LONG, i64, int>>;
  static constexpr int held = 256;  // slices whose sums are sure to fit 32 bits

  Sum acc[MT][NT][4];

  BARACUDA_D Int8Tile() { clear_accumulators(acc); }

  // The sums over k of p.k; m0, n0: the tile's first row and column. On return the ring is free.
  template <class P, class E>
  BARACUDA_D void add(u8* ring, Operand a, Operand b, const P& p, const E& epilogue, i64 m0, i64 n0) {
    const int slices = static_cast<int>(div_up(p.k, Base::depth));
    const i64 row = m0 + Base::warp_row() + lane_id() / 4, column = n0 + Base::warp_col() + lane_id() % 4 * 2;
    Partial partial;
    if constexpr (!is_same<Sum, int>) clear_accumulators(partial);
    i64 group = 0;
    Base::each_slice(ring, a, b, p.k, [&](const auto& slice, int s) {
      if constexpr (is_same<Sum, int>) {
#pragma unroll
        for (int step = 0; step < Base::steps; ++step) slice.multiply(acc, step);
      } else if constexpr (LONG) {
#pragma unroll
        for (int step = 0; step < Base::steps; ++step) slice.multiply(partial, step);
        if ((s + 1) % held == 0 || s + 1 == slices) add_long(partial);
      } else {
#pragma unroll 1
        for (int step = 0; step < Base::steps; ++step) {
          slice.multiply(partial, step);
          if ((step + 1) * 32 % p.group != 0 || group == p.groups) continue;
          add_group(partial, p, epilogue, row, column, group);
          ++group;
        }
      }
    });
  }
  template <class Sink> BARACUDA_D void finish(u8* ring, const Sink& sink) const { Base::put(ring, acc, sink); }

 private:
  // Adds partial sums to those of 64 bits; they begin at zero again.
  BARACUDA_D void add_long(Partial& partial) {
#pragma unroll
    for (int m = 0; m < MT; ++m)
#pragma unroll
      for (int n = 0; n < NT; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) acc[m][n][e] += partial[m][n][e];
    clear_accumulators(partial);
  }
  // Scales the sums of group g and adds them; they begin at zero again. row, column: the thread's first ones.
  template <class P, class E>
  BARACUDA_D void add_group(Partial& partial, const P& p, const E& epilogue, i64 row, i64 column, i64 g) {
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
            const int x = partial[m][n][2 * half + e];
            const float s = epilogue.centres() ? static_cast<float>(epilogue.centred(x, line, at(n, e), g, terms))
                                               : static_cast<float>(x);
            float& sum = acc[m][n][2 * half + e];
            sum = math::fma(s, scale * by[n][e], sum);
          }
      }
    clear_accumulators(partial);
  }
};

}  // namespace baracuda::gemm
