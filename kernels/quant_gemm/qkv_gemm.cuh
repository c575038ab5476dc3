#pragma once
// qkv_gemm   which of three products by stored weights, of the same x, a block has a tile of.
//
// Blocks are numbered through the tiles of q, then of k, then of v: those of product i begin with block first[i].
#include "quant_gemm/block_gemm.cuh"

namespace baracuda {

template <class P> BARACUDA_D int qkv_product(const P& p, u32 block) {
  return (block >= p.first[1]) + (block >= p.first[2]);
}

template <class A> BARACUDA_D A one_of(int i, A q, A k, A v) { return i == 0 ? q : i == 1 ? k : v; }

// One of the products, with the members that the product by one stored matrix reads of its parameters.
struct QkvProduct {
  const void *x, *bias, *codes, *scales, *zeros, *index;
  void* y;
  const i64 *x_steps, *y_steps, *code_steps, *scale_steps, *zero_steps;
  i64 m, n, k, bias_step, chunk_bytes;
  int group, groups, row_group, scale_code, zero_code, whole, scaled, wide_out;
  float factor;
  BARACUDA_D float scale() const { return factor; }

  template <class P>
  BARACUDA_D QkvProduct(const P& p, int i)
      : x(p.x), bias(one_of(i, p.bias_q, p.bias_k, p.bias_v)), codes(one_of(i, p.codes_q, p.codes_k, p.codes_v)),
        scales(one_of(i, p.scales_q, p.scales_k, p.scales_v)), zeros(one_of(i, p.zeros_q, p.zeros_k, p.zeros_v)),
        index(one_of(i, p.index_q, p.index_k, p.index_v)), y(one_of(i, p.y_q, p.y_k, p.y_v)), x_steps(p.x_steps),
        y_steps(p.y_steps[i]), code_steps(p.code_steps[i]), scale_steps(p.scale_steps[i]), zero_steps(p.zero_steps[i]),
        m(p.m), n(p.n[i]), k(p.k), bias_step(p.bias_step[i]), chunk_bytes(p.chunk_bytes), group(p.group),
        groups(p.groups), row_group(p.row_group), scale_code(p.scale_code), zero_code(p.zero_code), whole(p.whole[i]),
        scaled(p.scaled), wide_out(p.wide_out), factor(i == 0   ? p.scale_q()
                                                       : i == 1 ? p.scale_k()
                                                                : p.scale_v()) {}
};

}  // namespace baracuda
