#pragma once
// w4a8_sums  tiles of yᵀ = W xᵀ of int8 by weights of 4 bits in groups, on sm_90a, once bytes of both are in shared memory:
//            quant_gemm/w4a8.cuh.
//
// They are the tiles, ring and clusters of gemm/wgmma.cuh: 128 rows of W by COLUMNS rows of x, slices of 128 of k. Two
// warpgroups multiply 64 rows of W each. Where a group ends its integers are scaled and added to the sums in registers,
// while the tensor cores have the other warpgroup's. A thread's sums are of two rows of W, whose scales come with the
// stage. P is as quant_gemm/w4a8.cuh wants it, with x_map, x_step, group, groups and what gemm/wgmma.cuh reads.
#include "gemm/wgmma.cuh"
#include "quant_gemm/w4a8.cuh"
#include <baracuda/wgmma_int8.cuh>

namespace baracuda {
namespace gemm {

// schedules/w4a8_wgmma.py has w4a8_barriers, the bytes that all barriers take, and w4a8_runs, runs of k in a slice.
constexpr int w4a8_scales = tile_rows * w4a8_runs;  // floats of a stage

// COMPACT: a stage has a scale for each row and group in the slice, else, and where groups are not whole slices, one for
// each row and run.
template <class T, int COLUMNS, int CLUSTER, int STAGES, bool COMPACT, class P>
struct W4A8Sums : Product<i8, i8, COLUMNS, false, false, false, STAGES, 2, P, void, CLUSTER> {
  using Base = Product<i8, i8, COLUMNS, false, false, false, STAGES, 2, P, void, CLUSTER>;
  using Ring = typename Base::Ring;
  using Sums = typename Base::Sums;
  using Ints = int[COLUMNS / 8][4];  // of a thread
  using Base::memory, Base::p, Base::rank, Base::slices;
  static constexpr int DEPTH = Base::DEPTH, RUN = DEPTH / w4a8_runs;
  float* const scales;  // [stage][row of W in the tile][run of the slice]

  BARACUDA_D W4A8Sums(const P& p, unsigned char* shared)
      : Base(p, shared, true),
        scales(reinterpret_cast<float*>(reinterpret_cast<unsigned char*>(memory.full) + w4a8_barriers)) {}
  // Of a row of W in the tile, for the group in which a run of a slice of EACH parts is, the first of its part.
  template <int EACH> BARACUDA_D float* scale_of(u32 stage, int row, int run) const {
    float* const from = scales + stage * w4a8_scales;
    constexpr int steps = w4a8_runs / EACH;
    return COMPACT ? from + row * EACH + run / steps : from + row * w4a8_runs + run + steps - 1;
  }
  // One thread's: the rows of x from m on into a stage, in clusters a share of them into those of both blocks.
  BARACUDA_D void load_x(u32 stage, int k, int m, int item) const {
    if constexpr (CLUSTER == 1) {
      tensor_load(memory.b(stage), p.x_map, memory.full[stage], k, m, item);
    } else {
      const int first = static_cast<int>(rank) * Base::SHARE;
      tensor_load_to(3, memory.b(stage) + first * 128, p.x_map, memory.full[stage], k, m + first, item);
    }
  }

  // The sums over all groups. STEPS: of 32 of k, 4 where every group is of whole slices, else 1; lead: the number of
  // slices after which the other warpgroup may begin, 0 where it has begun.
  template <int STEPS> BARACUDA_D void multiply(Sums& sums, Stage<STAGES>& at, int group, int lead) const {
    constexpr u64 step = Ring::stage_bytes >> 4, along = RUN >> 4;
    constexpr int EACH = DEPTH / RUN / STEPS;  // parts of a slice
    const u64 a = wgmma_operand(memory.a(0) + group * (64 * 128)), b = wgmma_operand(memory.b(0));
    const int row = 64 * group + static_cast<int>(threadIdx.x) % 128 / 32 * 16 + lane_id() / 4;
    const int groups = static_cast<int>(p.groups), parts = STEPS == 4 ? slices : static_cast<int>(p.k / RUN);
    const int of_group = groups == 1 ? parts : static_cast<int>(p.group / (RUN * STEPS));
    const int leads = min(lead * EACH, parts);
    Base::clear(sums);
    int part = 0;
#pragma unroll 1
    for (int g = 0; g < groups; ++g) {
      Ints d;
      float low, high;  // the scales of rows `row` and `row` + 8
      u32 before = 0;
#pragma unroll 1
      for (int n = 0; n < of_group; ++n) {
        const u32 stage = at.index();
        const int run = part % EACH;  // the first step
        if (run == 0) memory.full[stage].wait(at.full_parity());
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < STEPS; ++k) {
          const u64 from = stage * step + (run + k) * along;
          wgmma_int8<i8, i8>(d, a + from, b + from, k == 0 ? n != 0 : 1);
        }
        wgmma_commit();
        low = *scale_of<EACH>(stage, row, run), high = *scale_of<EACH>(stage, row + 8, run);
        if (++part == leads) memory.led->arrive_as_warp();
        if constexpr (EACH == 1) {
          if (n != 0) {
            wgmma_wait<1>();
            this->release(before);
          }
          before = stage;
          at.advance();
        } else if (run == EACH - 1 || part == parts) {
          wgmma_wait<0>();
          this->release(stage);
          at.advance();
        }
      }
      wgmma_wait<0>();
      if constexpr (EACH == 1) this->release(before);
      hold(d);
#pragma unroll
      for (int i = 0; i < COLUMNS / 8; ++i)
#pragma unroll
        for (int e = 0; e < 4; ++e) sums[i][e] = with_group(sums[i][e], d[i][e], e < 2 ? low : high);
    }
  }

  // Where a warp's part of shared memory has 4 of the 16 rows of W, from 4 `piece` on, of a row of x: neither the scalars
  // of a fragment nor 16 bytes of every lane meet more than twice in a bank.
  static BARACUDA_D int place(int row, int piece) { return row * 16 + (piece ^ row / 2 % 4) * 4; }
  // The warp's 16 rows of W by way of there, where each thread finds 8 of them, of one row of x, together: at most 64 rows
  // of x at a time, which then are the first of d, as registers have no index.
  BARACUDA_D void finish(Sums& d, const Tile& tile, int group) const {
    constexpr int N = 8, TURNS = N / 2;  // quads; rows of a thread
    static_assert(8 * N * 16 * 4 <= Ring::staging_bytes, "the rows fit");
    float* const stage = reinterpret_cast<float*>(memory.part(group));
    const int g = lane_id() / 4, q = lane_id() % 4, octet = lane_id() % 2;
    const i64 n = this->row_of(tile) + 64 * group + static_cast<int>(threadIdx.x) % 128 / 32 * 16 + 8 * octet;
    const W4A8Output<P> output{p, tile.item};
#pragma unroll 1
    for (int c = 0; c < COLUMNS; c += 8 * N) {
      const i64 m0 = static_cast<i64>(tile.n) * COLUMNS + c;
      float scale[TURNS];  // which come while the sums are exchanged
#pragma unroll
      for (int t = 0; t < TURNS; ++t) scale[t] = output.scale(min(m0 + 16 * t + lane_id() / 2, p.m - 1));
      __syncwarp();
#pragma unroll
      for (int i = 0; i < N; ++i) {
#pragma unroll
        for (int e = 0; e < 4; ++e) stage[place(8 * i + 2 * q + e % 2, g / 4 + e / 2 * 2) + g % 4] = d[i][e];
      }
      __syncwarp();
#pragma unroll
      for (int t = 0; t < TURNS; ++t) {
        const int row = 16 * t + lane_id() / 2;
        if (m0 + row >= p.m || n >= p.n) continue;
        const float4 low = *reinterpret_cast<const float4*>(stage + place(row, 2 * octet));
        const float4 high = *reinterpret_cast<const float4*>(stage + place(row, 2 * octet + 1));
        output.template put<T>({{low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w}}, scale[t], m0 + row, n);
      }
      Base::template shift<N>(d);
    }
  }
  BARACUDA_D void consume(int group) const {
    Stage<STAGES> at;
    int lead = p.lead;
    if (group == 1 && lead != 0) memory.led->wait(0), lead = 0;
    this->for_tiles([&](const Tile& tile) {
      Sums sums;
      if (p.groups <= 1 || p.group % DEPTH == 0) multiply<DEPTH / RUN>(sums, at, group, lead);
      else multiply<1>(sums, at, group, lead);
      lead = 0;
      finish(sums, tile, group);
    });
  }
};

}  // namespace gemm
}  // namespace baracuda
