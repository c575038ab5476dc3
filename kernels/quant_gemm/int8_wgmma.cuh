#pragma once
// int8_wgmma products of integers of 8 bits on sm_90a: the tiles, ring and clusters of gemm/wgmma.cuh, sums in 32 bits.
//
// Both operands have k along memory; a stage has 128 of it. P is as quant_gemm/epilogue.cuh wants it, with what
// gemm/wgmma.cuh reads besides, of which `lead` is by how many stages the first warpgroup is ahead, so that one multiplies
// while the other finishes its tile. Integers have no order of sums.
#include "gemm/wgmma.cuh"
#include "quant_gemm/epilogue.cuh"
#include <baracuda/wgmma_int8.cuh>

namespace baracuda::gemm {

template <class TA, class TB, IntGemm KIND, int COLUMNS, class P, class E = IntEpilogue<KIND, P>,
          int CLUSTER = COLUMNS == 256 ? 2 : 1>
struct Int8Product : Product<i8, i8, COLUMNS, false, false, false, default_stages<COLUMNS>, 2, P, E, CLUSTER> {
  using Base = Product<i8, i8, COLUMNS, false, false, false, default_stages<COLUMNS>, 2, P, E, CLUSTER>;
  using Ring = typename Base::Ring;
  using Sums = int[COLUMNS / 8][4];  // of a thread
  using Base::memory, Base::p, Base::slices, Base::release, Base::run;

  BARACUDA_D Int8Product(const P& p, unsigned char* shared) : Base(p, shared, true) {}

  static BARACUDA_D void clear(Sums& d) {
#pragma unroll
    for (int n = 0; n < COLUMNS / 8; ++n) d[n][0] = d[n][1] = d[n][2] = d[n][3] = 0;
  }
  // ready(stage, s): what is done with slice s before it is multiplied; started(s): once it is.
  template <class F, class G>
  BARACUDA_D void multiply(Sums& d, Stage<Ring::stages>& at, int group, int slices, F ready, G started) const {
    constexpr u64 step = Ring::stage_bytes >> 4, along = 32 >> 4;
    const u64 a = wgmma_operand(memory.a(0) + group * (64 * 128)), b = wgmma_operand(memory.b(0));
    if (slices == 0) return clear(d);
    u32 before = 0;
#pragma unroll 1
    for (int s = 0; s < slices; ++s, at.advance()) {
      const u32 stage = at.index();
      memory.full[stage].wait(at.full_parity());
      ready(stage, s);
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < 128 / 32; ++k) {
        const u64 from = stage * step + k * along;
        wgmma_int8<TA, TB>(d, a + from, b + from, k == 0 ? s != 0 : 1);
      }
      wgmma_commit();
      started(s);
      if (s != 0) {
        wgmma_wait<1>();
        release(before);
      }
      before = stage;
    }
    wgmma_wait<0>();
    release(before);
    hold(d);
  }

  // A warp's 16 rows through its part of shared memory, where each thread finds 8 columns of a row together: 64 columns
  // at a time, which then are the first of d, as registers have no index. m: the first of them, of which those before
  // `end` exist; n0: the tile's first column.
  BARACUDA_D void finish(Sums& d, i64 m, i64 n0, i64 end, int item, int group) const {
    constexpr int N = 8;  // quads
    const E epilogue(p, item);
    const bool down = p.strides[int_matrix::y][1] != 1;  // then neighbouring threads have neighbouring rows
    float* const stage = reinterpret_cast<float*>(memory.part(group));
#pragma unroll 1
    for (int c = 0; c < COLUMNS; c += 8 * N) {
      float words[N][4];  // as the staging of all products moves them
#pragma unroll
      for (int n = 0; n < N; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) words[n][e] = __int_as_float(d[n][e]);
      __syncwarp();
      Base::put(stage, words);
      __syncwarp();
#pragma unroll 1
      for (int e = lane_id(); e < 16 * N; e += warp_size) {
        const int row = down ? e % 16 : e / N, octet = down ? e / 16 : e % N;
        const i64 column = n0 + c + 8 * octet;
        if (m + row >= end || column >= p.n) continue;
        const auto from = Base::get(stage, row, octet);
        Vec<int, 8> sum;
#pragma unroll
        for (int k = 0; k < 8; ++k) sum[k] = __float_as_int(from[k]);
        epilogue.row(m + row, column, p.n - column, sum);
      }
#pragma unroll
      for (int n = 0; n < COLUMNS / 8 - N; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) d[n][e] = d[n + N][e];
    }
  }

  BARACUDA_D void run() const {
    Base::run([&](int group) {
      Stage<Ring::stages> at;
      int lead = Base::LEADS ? min(p.lead, slices) : 0;
      if (group == 1 && lead != 0) memory.led->wait(0), lead = 0;
      this->for_tiles([&](const Tile& tile) {
        Sums d;
        multiply(
            d, at, group, slices, [](u32, int) {},
            [&](int s) {
              if (s + 1 == lead) memory.led->arrive_as_warp();
            });
        lead = 0;
        const i64 m = this->row_of(tile) + 64 * group + static_cast<int>(threadIdx.x) % 128 / 32 * 16;
        finish(d, m, static_cast<i64>(tile.n) * COLUMNS, p.m, tile.item, group);
      });
    });
  }
};

}  // namespace baracuda::gemm
