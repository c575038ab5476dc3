#pragma once
// wgmma_fp8  matrix products of fp8 on sm_90a: the tiles, ring and clusters of gemm/wgmma.cuh, accumulators in float.
//
// The tensor cores keep some 13 bits below the largest term of a sum of fp8 products. So 128 terms, a stage, are summed
// there, and this partial sum is added to accumulators in registers with one rounding of float (Liu et al., DeepSeek-V3,
// 2024): while one warpgroup adds, the other multiplies. What blocks of k are scaled by comes in with the same fused
// multiply-add:
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

// The products of fp8 in float: 32 of k of 64 rows of a and N * 8 columns of b.
template <class TA, class TB> struct Fp8Mma {
  using Element = TA;
  using Sum = float;
  static constexpr bool a_across = false, b_across = false;

  // acc = a b, plus acc where `adds`.
  template <int N> static BARACUDA_D void multiply(float (&acc)[N][4], u64 a, u64 b, int adds) {
    wgmma_along<TA, TB>(acc, a, b, adds);
  }
  // Keeps the compiler from using acc before it was waited for.
  template <int N> static BARACUDA_D void hold(float (&acc)[N][4]) { baracuda::hold(acc); }
};

// V: the element of the bias.
template <class TA, class TB, class U, class V, int COLUMNS, int CLUSTER, class P, class E>
struct Fp8Product : Product<Fp8Mma<TA, TB>, U, COLUMNS, false, default_stages<COLUMNS>, 2, P, E, CLUSTER> {
  using Base = Product<Fp8Mma<TA, TB>, U, COLUMNS, false, default_stages<COLUMNS>, 2, P, E, CLUSTER>;
  using Ring = typename Base::Ring;
  using Accumulator = typename Base::Accumulator;
  using Base::memory, Base::p, Base::slices;

  BARACUDA_D Fp8Product(const P& p, unsigned char* shared, bool multiplies) : Base(p, shared, multiplies) {}

  // The first of the two rows of this thread.
  BARACUDA_D i64 row_of_thread(const Tile& tile, int consumer) const {
    return this->row_of(tile) + 64 * consumer + warp_row() + lane_id() / 4;
  }

  // Waits for the next stage and issues its products, a chain from zero.
  BARACUDA_D void start(Accumulator& partial, u64 a, u64 b, Stage<Ring::stages>& at) const {
    const u32 stage = at.index();
    memory.full[stage].wait(at.full_parity());
    Base::issue_products(partial, a, b, stage, 0);
    at.advance();
  }
  // Adds the partial sums of a stage whose products are done, times its scales; `by` has that of either row.
  BARACUDA_D void add(Accumulator& acc, Accumulator& partial, const float2& by, Stage<Ring::stages>& done) const {
    this->release(done.index());
    done.advance();
    hold(partial);
#pragma unroll
    for (int n = 0; n < COLUMNS / 8; ++n) {
      acc[n][0] = math::fma(partial[n][0], by.x, acc[n][0]), acc[n][1] = math::fma(partial[n][1], by.x, acc[n][1]);
      acc[n][2] = math::fma(partial[n][2], by.y, acc[n][2]), acc[n][3] = math::fma(partial[n][3], by.y, acc[n][3]);
    }
  }
  // Two partial sums in turn: the products of one stage run while those of the stage before are added.
  BARACUDA_D void multiply(Accumulator& acc, Stage<Ring::stages>& at, const Tile& tile, int consumer) const {
    const u64 a = this->left_operand(consumer), b = this->right_operand();
    const BlockScales scales(p, row_of_thread(tile, consumer), static_cast<i64>(tile.n) * COLUMNS);
    Base::clear(acc);
    if (slices == 0) return;
    Accumulator even, odd;
    Stage<Ring::stages> done = at;
    float2 by = scales.at(0), next = by;
    start(even, a, b, at);
    int s = 0;
#pragma unroll 1
    for (; s + 2 < slices; s += 2) {
      next = scales.at(s + 1);
      start(odd, a, b, at);
      wgmma_wait<1>();
      add(acc, even, by, done);
      by = scales.at(s + 2);
      start(even, a, b, at);
      wgmma_wait<1>();
      add(acc, odd, next, done);
    }
    // The last slice, or two.
    if (s + 1 < slices) {
      next = scales.at(s + 1);
      start(odd, a, b, at);
      wgmma_wait<1>();
      add(acc, even, by, done);
      wgmma_wait<0>();
      add(acc, odd, next, done);
    } else {
      wgmma_wait<0>();
      add(acc, even, by, done);
    }
  }

  // bias + scale_a scale_b alpha sum, in the order of gemm/epilogue.cuh.
  BARACUDA_D void scale(Accumulator& acc, float alpha, const Tile& tile, int consumer) const {
    const i64 row = row_of_thread(tile, consumer), first = static_cast<i64>(tile.n) * COLUMNS + lane_id() % 4 * 2;
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
        float &low = acc[n][e], &high = acc[n][e + 2];
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

  BARACUDA_D void consume(float alpha, int consumer) const {
    Stage<Ring::stages> at;
    this->for_tiles([&](const Tile& tile) {
      Accumulator acc;
      multiply(acc, at, tile, consumer);
      const int m = this->row_of(tile) + 64 * consumer + warp_row();
      if constexpr (sizeof(U) == 2) {
        if (p.plain) {
          scale(acc, alpha, tile, consumer);
          return this->store(acc, 1.0f, m, tile.n * COLUMNS, tile.batch, consumer);
        }
      }
      this->finish(acc, p, m, tile.n * COLUMNS, tile.batch, consumer);
    });
    bulk_wait<0>();
  }
  BARACUDA_D void run(float alpha) const {
    Base::run([&](int consumer) { consume(alpha, consumer); });
  }
};

}  // namespace baracuda::gemm
