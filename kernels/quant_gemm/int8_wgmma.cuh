#pragma once
// int8_wgmma products of integers of 8 bits on sm_90a: gemm/wgmma.cuh with an instruction whose sums have 32 bits.
//
// Both operands have k along memory; a stage has 128 of it. P is as quant_gemm/epilogue.cuh wants it, with what
// gemm/wgmma.cuh reads besides. Integers have no order of sums.
#include "quant_gemm/epilogue.cuh"
#include "quant_gemm/int8_mma.cuh"

namespace baracuda::gemm {

template <class TA, class TB, IntGemm KIND, int COLUMNS, class P, class E = IntEpilogue<KIND, P>,
          int CLUSTER = COLUMNS == 256 ? 2 : 1>
struct Int8Product : Product<Int8Mma<TA, TB>, i8, COLUMNS, false, default_stages<COLUMNS>, 2, P, E, CLUSTER> {
  using Base = Product<Int8Mma<TA, TB>, i8, COLUMNS, false, default_stages<COLUMNS>, 2, P, E, CLUSTER>;
  using Accumulator = typename Base::Accumulator;
  using Base::p, Base::run;

  BARACUDA_D Int8Product(const P& p, unsigned char* shared) : Base(p, shared, true) {}

  // Epilogue: the warp's rows m …, of which those before `end` exist, of the tile that begins at column n.
  BARACUDA_D void finish(Accumulator& acc, int m, int n, i64 end, int batch, int consumer) const {
    const E epilogue(p, batch);
    const bool down = p.strides[int_matrix::y][1] != 1;
    this->each_octet(acc, m, n, end, p.n, down, consumer, [&](i64 row, i64 column, const auto& sum, const auto&) {
      epilogue.row(row, column, p.n - column, sum);
    });
  }

  BARACUDA_D void run() const {
    Base::run([&](int consumer) {
      this->consume_tiles(consumer, [&](Accumulator& acc, const Tile& tile, int m) {
        finish(acc, m, tile.n * COLUMNS, p.m, tile.batch, consumer);
      });
    });
  }
};

}  // namespace baracuda::gemm
