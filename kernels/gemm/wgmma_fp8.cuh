#pragma once
// wgmma_fp8  matrix products of fp8 on sm_90a: the tiles, ring and clusters of gemm/wgmma.cuh, sums kept in float.
//
// The tensor cores keep some 13 bits below the largest term of a sum of fp8 products. So 128 terms, a stage, are summed
// there, and added to sums in registers with one rounding of float (Liu et al., DeepSeek-V3, 2024): while one warpgroup
// adds, the other multiplies. What blocks of k are scaled by comes in with the same fused multiply-add:
//
//   sum = Σ over blocks s of 128 of k   (block_a[m, s] block_b[s, n / 128]) Σ over the block a b
//
// in the order of k: bits depend on k alone. A null block_a or block_b counts as ones. P has those pointers and a_blocks
// and b_blocks, their strides, besides what gemm/wgmma.cuh reads; `plain` says that y is bias + scale_a scale_b alpha sum
// and goes by y_map. TA, TB: the elements of a and b, of which both have k along memory.
#include "gemm/block_scales.cuh"
#include "gemm/fp8_epilogue.cuh"
#include "gemm/wgmma.cuh"

namespace baracuda::gemm {

template <class TA, class TB, class U, class V, int COLUMNS, int CLUSTER, class P, class E>
struct Fp8Product : Product<TA, U, COLUMNS, false, false, false, default_stages<COLUMNS>, 2, P, E, CLUSTER> {
  using Base = Product<TA, U, COLUMNS, false, false, false, default_stages<COLUMNS>, 2, P, E, CLUSTER>;
  using Ring = typename Base::Ring;
  using Base::memory, Base::p, Base::slices;

  BARACUDA_D Fp8Product(const P& p, unsigned char* shared, bool multiplies) : Base(p, shared, multiplies) {}

  // The first of the two rows of this thread.
  BARACUDA_D i64 row_in(const Tile& tile, int group) const {
    return this->row_of(tile) + 64 * group + static_cast<int>(threadIdx.x) % 128 / 32 * 16 + lane_id() / 4;
  }

  // Starts the products of the next stage; commits them.
  BARACUDA_D void start(float (&part)[COLUMNS / 8][4], u64 a, u64 b, Stage<Ring::stages>& at) const {
    constexpr u64 step = Ring::stage_bytes >> 4, along = 32 >> 4;
    const u32 stage = at.index();
    memory.full[stage].wait(at.full_parity());
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < 128 / 32; ++k) {
      wgmma_along<TA, TB>(part, a + stage * step + k * along, b + stage * step + k * along, k != 0);
    }
    wgmma_commit();
    at.advance();
  }
  // Adds the sums of a stage, with its scales, when its products are done.
  BARACUDA_D void add(float (&sums)[COLUMNS / 8][4], float (&part)[COLUMNS / 8][4], const float2& by,
                      Stage<Ring::stages>& done) const {
    this->release(done.index());
    done.advance();
    hold(part);
#pragma unroll
    for (int n = 0; n < COLUMNS / 8; ++n) {
      sums[n][0] = math::fma(part[n][0], by.x, sums[n][0]), sums[n][1] = math::fma(part[n][1], by.x, sums[n][1]);
      sums[n][2] = math::fma(part[n][2], by.y, sums[n][2]), sums[n][3] = math::fma(part[n][3], by.y, sums[n][3]);
    }
  }
  // Two stages in turn: one is multiplied while the one before it is added.
  BARACUDA_D void multiply(float (&sums)[COLUMNS / 8][4], Stage<Ring::stages>& at, const Tile& tile, int group) const {
    const u64 a = wgmma_operand(memory.a(0) + group * (64 * 128)), b = wgmma_operand(memory.b(0));
    const BlockScales scales(p, row_in(tile, group), static_cast<i64>(tile.n) * COLUMNS);
#pragma unroll
    for (int n = 0; n < COLUMNS / 8; ++n) sums[n][0] = sums[n][1] = sums[n][2] = sums[n][3] = 0.0f;
    if (slices == 0) return;
    float even[COLUMNS / 8][4], odd[COLUMNS / 8][4];
    Stage<Ring::stages> done = at;
    float2 by = scales.at(0), next = by;
    start(even, a, b, at);
    int s = 0;
#pragma unroll 1
    for (; s + 2 < slices; s += 2) {
      next = scales.at(s + 1);
      start(odd, a, b, at);
      wgmma_wait<1>();
      add(sums, even, by, done);
      by = scales.at(s + 2);
      start(even, a, b, at);
      wgmma_wait<1>();
      add(sums, odd, next, done);
    }
    if (s + 1 < slices) {
      next = scales.at(s + 1);
      start(odd, a, b, at);
      wgmma_wait<1>();
      add(sums, even, by, done);
      wgmma_wait<0>();
      add(sums, odd, next, done);
    } else {
      wgmma_wait<0>();
      add(sums, even, by, done);
    }
  }

  // bias + scale_a scale_b alpha sum, in the order of gemm/epilogue.cuh.
  BARACUDA_D void scale(float (&sums)[COLUMNS / 8][4], float alpha, const Tile& tile, int group) const {
    const i64 row = row_in(tile, group), first = static_cast<i64>(tile.n) * COLUMNS + lane_id() % 4 * 2;
    const auto of_row = [&](i64 m) {
      if (p.scale_a == nullptr) return 1.0f;
      return static_cast<const float*>(p.scale_a)[min(m, p.m - 1) * p.vectors[gemm_vector::scale_a]];
    };
    const float rows[2] = {of_row(row), of_row(row + 8)}, by[2] = {alpha * rows[0], alpha * rows[1]};
    const bool scaled = p.scale_a != nullptr || p.scale_b != nullptr;
#pragma unroll
    for (int n = 0; n < COLUMNS / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const i64 column = min(first + 8 * n + e, p.n - 1);
        float &low = sums[n][e], &high = sums[n][e + 2];
        if (!scaled) {
          low *= alpha, high *= alpha;
        } else {
          float factor = 1.0f;
          if (p.scale_b != nullptr)
            factor = static_cast<const float*>(p.scale_b)[column * p.vectors[gemm_vector::scale_b]];
          bool over;
          low = with_scales(low, by[0], alpha, rows[0], factor, over);
          high = with_scales(high, by[1], alpha, rows[1], factor, over);
        }
        if (p.bias != nullptr) {
          const float bias = to_acc(static_cast<const V*>(p.bias)[column * p.vectors[gemm_vector::bias]]);
          low += bias, high += bias;
        }
      }
    }
  }

  BARACUDA_D void run(float alpha) const {
    Base::run([&](int group) {
      Stage<Ring::stages> at;
      this->for_tiles([&](const Tile& tile) {
        float sums[COLUMNS / 8][4];
        multiply(sums, at, tile, group);
        const int m = static_cast<int>(row_in(tile, group)) - lane_id() / 4;  // of this warp
        if constexpr (sizeof(U) == 2) {
          if (p.plain) {
            scale(sums, alpha, tile, group);
            return this->store(sums, 1.0f, m, tile.n * COLUMNS, tile.item, group);
          }
        }
        this->finish(sums, p, m, tile.n * COLUMNS, tile.item, group);
      });
      bulk_wait<0>();
    });
  }
};

}  // namespace baracuda::gemm
