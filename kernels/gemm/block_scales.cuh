#pragma once
// block_scales   the scales of blocks of 128 of k, of products of fp8.
//
// P has block_a and block_b, float, null where there are none, and a_blocks and b_blocks, their strides: of rows of a and
// blocks, of blocks and 128 columns of b.
#include <baracuda/index.cuh>

namespace baracuda::gemm {

// Those that the rows `row` and `row` + 8, and the columns of a thread's tile, which lie in one block, have in common.
class BlockScales {
  const float *low, *high, *right;  // of the two rows and of the columns, at the first block
  i64 left_step, right_step;

 public:
  template <class P> BARACUDA_D BlockScales(const P& p, i64 row, i64 column) {
    const auto of_row = [&](i64 m) {
      return p.block_a == nullptr ? nullptr : static_cast<const float*>(p.block_a) + min(m, p.m - 1) * p.a_blocks[0];
    };
    low = of_row(row), high = of_row(row + 8);
    right = p.block_b == nullptr ? nullptr : static_cast<const float*>(p.block_b) + column / 128 * p.b_blocks[1];
    left_step = p.a_blocks[1], right_step = p.b_blocks[0];
  }
  // Of block s: one for each row.
  BARACUDA_D float2 at(int s) const {
    const float both = right == nullptr ? 1.0f : right[s * right_step];
    if (low == nullptr) return make_float2(both, both);
    return make_float2(low[s * left_step] * both, high[s * left_step] * both);
  }
};

}  // namespace baracuda::gemm
