#pragma once
// grouped_block_gemm   products of the rows of experts by their stored weights, as block_gemm.cuh has one of a batch.
//
// x is [total, k], the stored weights [experts, n, k], y [total, n] in the element of x. P has n, k, chunk_bytes, x, bias
// and y, x_steps and y_steps as block_gemm.cuh, whose steps along the batch are 0 here, bias_steps of experts and n,
// wide_out, and what quant_gemm/experts.cuh and `Stored` read.
#include "quant_gemm/block_gemm.cuh"
#include "quant_gemm/experts.cuh"

namespace baracuda {

// One expert's product, with the members that the product by one stored matrix reads of its parameters.
template <class T> struct ExpertProduct {
  const void *x, *bias;
  void* y;
  const i64 *x_steps, *y_steps;
  i64 m, n, k, bias_step, chunk_bytes;  // m: the expert's last row, and one
  int wide_out;

  template <class P>
  BARACUDA_D ExpertProduct(const P& p, const GroupTile& at)
      : x(p.x), bias(p.bias), y(p.y), x_steps(p.x_steps), y_steps(p.y_steps), m(at.end), n(p.n), k(p.k),
        bias_step(p.bias_steps[1]), chunk_bytes(p.chunk_bytes), wide_out(p.wide_out) {
    if (bias != nullptr) bias = static_cast<const T*>(bias) + at.group * p.bias_steps[0];
  }
};

// The tile of a product by one stored matrix that a tile of an expert's rows is.
template <class TILE, class T> BARACUDA_D TILE tile_of_expert(const ExpertProduct<T>& p, const GroupTile& at) {
  TILE tile(p, 0);
  tile.m0 = at.m0, tile.n0 = at.n0, tile.batch = at.group;
  return tile;
}

// Writes zeros to the ROWS by COLUMNS places of a tile that exist: rows of no expert.
template <class T, int ROWS, int COLUMNS, class P> BARACUDA_D void put_no_expert(const P& p, const GroupTile& at) {
  for (int e = threadIdx.x; e < ROWS * COLUMNS; e += blockDim.x) {
    const i64 m = at.m0 + e / COLUMNS, n = at.n0 + e % COLUMNS;
    if (m < at.end && n < p.n) static_cast<T*>(p.y)[m * p.y_steps[1] + n * p.y_steps[2]] = from_acc<T>(0.0f);
  }
}

}  // namespace baracuda
