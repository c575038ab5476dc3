#pragma once
// w4a8_sums  tiles of yᵀ = W xᵀ of int8 by weights of 4 bits in groups, on sm_90a, once bytes of both are in shared memory:
//            quant_gemm/w4a8.cuh.
//
// They are the tiles, ring and clusters of gemm/wgmma.cuh: 128 rows of W by COLUMNS rows of x, slices of 128 of k. Two
// warpgroups multiply 64 rows of W each. Where a group ends, its integers are scaled and added to accumulators in float,
// while the tensor cores have the other warpgroup's. A thread's sums are of two rows of W, whose scales come with the
// stage. P is as quant_gemm/w4a8.cuh wants it, with x_map, x_step, group, groups and what gemm/wgmma.cuh reads.
#include "gemm/wgmma_transposed.cuh"
#include "quant_gemm/int8_mma.cuh"
#include "quant_gemm/w4a8.cuh"

namespace baracuda {
namespace gemm {

// schedules/w4a8_wgmma.py has w4a8_barriers, the bytes that all barriers take, and w4a8_runs, runs of k in a slice.
constexpr int w4a8_scales = tile_rows * w4a8_runs;  // floats of a stage

// COMPACT: a stage has a scale for each row and group in the slice, else, and where groups are not whole slices, one for
// each row and run.
template <class T, int COLUMNS, int CLUSTER, int STAGES, bool COMPACT, class P>
struct W4A8Sums : Product<Int8Mma<i8, i8>, i8, COLUMNS, false, STAGES, 2, P, void, CLUSTER> {
  using Base = Product<Int8Mma<i8, i8>, i8, COLUMNS, false, STAGES, 2, P, void, CLUSTER>;
  using Ring = typename Base::Ring;
  using OfGroup = typename Base::Accumulator;  // integers, of a thread
  using Accumulator = float[COLUMNS / 8][4];
  using Base::memory, Base::p, Base::slices;
  static constexpr int DEPTH = Base::DEPTH, RUN = DEPTH / w4a8_runs;
  float* const scales;  // [stage][row of W in the tile][run of the slice]

  BARACUDA_D W4A8Sums(const P& p, unsigned char* shared)
      : Base(p, shared, true),
        scales(reinterpret_cast<float*>(reinterpret_cast<unsigned char*>(memory.full) + w4a8_barriers)) {}
  // Of a row of W in the tile, for the group in which a run is, the first of one of the slice's PIECES.
  template <int PIECES> BARACUDA_D float* scale_of(u32 stage, int row, int run) const {
    float* const from = scales + stage * w4a8_scales;
    constexpr int runs = w4a8_runs / PIECES;
    return COMPACT ? from + row * PIECES + run / runs : from + row * w4a8_runs + run + runs - 1;
  }

  // The sums over all groups. STEPS: runs of k that are multiplied together, a piece of a slice: 4 where every group is of
  // whole slices, else 1; lead: the number of slices after which the other warpgroup may begin, 0 where it has begun.
  template <int STEPS> BARACUDA_D void multiply(Accumulator& acc, Stage<STAGES>& at, int consumer, int lead) const {
    constexpr u64 step = Ring::stage_bytes >> 4, along = RUN >> 4;
    constexpr int PIECES = DEPTH / RUN / STEPS;  // of a slice
    const u64 a = this->left_operand(consumer), b = this->right_operand();
    const int row = 64 * consumer + warp_row() + lane_id() / 4;
    const int groups = static_cast<int>(p.groups), pieces = STEPS == 4 ? slices : static_cast<int>(p.k / RUN);
    const int of_group = groups == 1 ? pieces : static_cast<int>(p.group / (RUN * STEPS));
    const int leads = min(lead * PIECES, pieces);
    Base::clear(acc);
    int piece = 0;  // of k
#pragma unroll 1
    for (int g = 0; g < groups; ++g) {
      OfGroup ints;
      float low, high;  // the scales of rows `row` and `row` + 8
      u32 before = 0;
#pragma unroll 1
      for (int n = 0; n < of_group; ++n) {
        // Wait for the stage.
        const u32 stage = at.index();
        const int run = piece % PIECES;  // the first of the piece
        if (run == 0) memory.full[stage].wait(at.full_parity());
        // Issue the products of the piece.
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < STEPS; ++k) {
          const u64 from = stage * step + (run + k) * along;
          Base::Mma::multiply(ints, a + from, b + from, k == 0 ? n != 0 : 1);
        }
        wgmma_commit();
        low = *scale_of<PIECES>(stage, row, run), high = *scale_of<PIECES>(stage, row + 8, run);
        if (++piece == leads) memory.led->arrive_as_warp();
        // Arrive: a stage whose products are done is free, the one before, or this one behind its last piece.
        if constexpr (PIECES == 1) {
          if (n != 0) {
            wgmma_wait<1>();
            this->release(before);
          }
          before = stage;
          at.advance();
        } else if (run == PIECES - 1 || piece == pieces) {
          wgmma_wait<0>();
          this->release(stage);
          at.advance();
        }
      }
      wgmma_wait<0>();
      if constexpr (PIECES == 1) this->release(before);
      Base::Mma::hold(ints);
      // The group ends: scale its integers and add them.
#pragma unroll
      for (int i = 0; i < COLUMNS / 8; ++i)
#pragma unroll
        for (int e = 0; e < 4; ++e) acc[i][e] = with_group(acc[i][e], ints[i][e], e < 2 ? low : high);
    }
  }

  // Epilogue: the warp's 16 rows of W by way of its staging, where each thread finds 8 of them, of one row of x, together:
  // at most 64 rows of x at a time, which then are the first of acc, as registers have no index.
  BARACUDA_D void finish(Accumulator& acc, const Tile& tile, int consumer) const {
    constexpr int N = 8, EACH = N / 2;  // quads; rows of a thread
    static_assert(8 * N * 16 * 4 <= Ring::staging_bytes, "the rows fit");
    float* const staging = reinterpret_cast<float*>(memory.staging(consumer));
    const int octet = lane_id() % 2;
    const i64 n = this->row_of(tile) + 64 * consumer + warp_row() + 8 * octet;
    const W4A8Output<P> output{p, tile.batch};
#pragma unroll 1
    for (int c = 0; c < COLUMNS; c += 8 * N) {
      const i64 m0 = static_cast<i64>(tile.n) * COLUMNS + c;
      float scale[EACH];  // which come while the sums are exchanged
#pragma unroll
      for (int t = 0; t < EACH; ++t) scale[t] = output.scale(min(m0 + 16 * t + lane_id() / 2, p.m - 1));
      __syncwarp();
      put_transposed(staging, reinterpret_cast<const float(&)[N][4]>(acc[0]));
      __syncwarp();
      // Store.
#pragma unroll
      for (int t = 0; t < EACH; ++t) {
        const int row = 16 * t + lane_id() / 2;
        if (m0 + row >= p.m || n >= p.n) continue;
        output.template put<T>(get_transposed(staging, row, octet), scale[t], m0 + row, n);
      }
      Base::template shift<N>(acc);
    }
  }
  BARACUDA_D void consume(int consumer) const {
    Stage<STAGES> at;
    int lead = wait_for_lead(*memory.led, consumer, p.lead);
    this->for_tiles([&](const Tile& tile) {
      Accumulator acc;
      if (p.groups <= 1 || p.group % DEPTH == 0) multiply<DEPTH / RUN>(acc, at, consumer, lead);
      else multiply<1>(acc, at, consumer, lead);
      lead = 0;
      finish(acc, tile, consumer);
    });
  }
};

}  // namespace gemm
}  // namespace baracuda
