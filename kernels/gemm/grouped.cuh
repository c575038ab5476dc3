#pragma once
// grouped    the parameters of one group of a grouped product, as gemm/epilogue.cuh reads those of a product.
#include "gemm/epilogue.cuh"
#include "gemm/groups.cuh"

namespace baracuda {

// The group's own biases; rows in no group have no product, no bias, no residual and no activation: they are zeros.
template <class T, class P> struct OneGroup {
  static constexpr int batch_rank = 0;
  const i64* batch_shape = nullptr;
  const i64 (*batch)[max_axes] = nullptr;
  const i64 (&strides)[8][2];
  const i64 (&vectors)[5];
  const void *bias, *up_bias, *row_bias = nullptr, *scale_a, *scale_b = nullptr, *c = nullptr, *residual;
  void *const y, *const pre, *const up_pre;
  const i64 m, n, k;  // m: the last row, and one
  const int activation, wide, a_cols_dense, b_cols_dense;
  const bool some;  // whether it is a group at all

  BARACUDA_D OneGroup(const P& p, const GroupTile& tile)
      : strides(p.strides), vectors(p.vectors), y(p.y), pre(p.pre), up_pre(p.up_pre), m(tile.end), n(p.n), k(p.k),
        activation(tile.group < 0 ? 0 : p.activation), wide(p.wide), a_cols_dense(p.a_cols_dense),
        b_cols_dense(p.b_cols_dense), some(tile.group >= 0) {
    bias = vector(p.bias, tile.group * p.group_strides[2]);
    up_bias = vector(p.up_bias, tile.group * p.group_strides[3]);
    scale_a = some ? p.scale_a : nullptr;
    residual = some ? p.residual : nullptr;
  }
  BARACUDA_D double alpha() const { return some ? 1.0 : 0.0; }
  BARACUDA_D double beta() const { return 0.0; }

 private:
  BARACUDA_D const void* vector(const void* start, i64 offset) const {
    return some && start != nullptr ? static_cast<const T*>(start) + offset : nullptr;
  }
};

}  // namespace baracuda
