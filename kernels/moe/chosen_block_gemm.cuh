#pragma once
// chosen_block_gemm   y[s] = unit(W[e] x[s] + bias[e]) for the slots s that chose expert e, W as it is stored: a slot is a
//                     token's choice, moe/decode.cuh. A block sorts the slots by expert and walks tiles, each
//                     `columns` outputs of up to decode_rows slots of one expert.
//
// A tile is one product of quant_gemm/, or two where the unit is gated: by gate_first and gate_last the rows of W from n on
// and those half of W further, interleaved the rows from 2 n on. Sums with their biases stay in shared memory,
// [product][slot][column], are rounded as an array of them would be, and meet the unit there. The order of a sum is that of
// quant_gemm/, which depends on k alone.
#include "moe/chunks.cuh"
#include "quant_gemm/block_gemm.cuh"

namespace baracuda {

// One expert's product, with the members that the product by one stored matrix reads of its parameters.
template <class T> struct ChosenProduct {
  const void *x, *bias;
  const i64* x_steps;
  i64 m, n, k, bias_step, chunk_bytes, n0;
  float* sums;
  int columns;
};
// Keeps the sum of a row of the tile, which the tile numbers from 0.
template <class T> BARACUDA_D void put_sum(const ChosenProduct<T>& p, i64, i64 m, i64 n, float sum) {
  if (p.bias != nullptr) sum += to_acc(static_cast<const T*>(p.bias)[n * p.bias_step]);
  p.sums[m * p.columns + n - p.n0] = sum;
}

namespace moe {

// The unit of a number of the tile: of its sum, or of the gate's and the up's.
template <class T, int COLUMNS, class P> BARACUDA_D T unit_of(const P& p, const float* sums, int row, int column) {
  const auto sum = [&](int product, int at) {
    return Vec<float, 1>{{to_acc(from_acc<T>(sums[(product * decode_rows + row) * COLUMNS + at]))}};
  };
  const auto order = static_cast<HalvesOrder>(p.order);
  Vec<float, 1> x, up;
  if (!p.gated) {
    x = sum(0, column);
    apply_unit<T, false>(p, x, x);
    return from_acc<T>(x[0]);
  }
  if (order == HalvesOrder::interleaved) {
    const int product = 2 * column / COLUMNS, at = 2 * column % COLUMNS;
    x = sum(product, at), up = sum(product, at + 1);
  } else {
    const int last = order == HalvesOrder::gate_last;
    x = sum(last, column), up = sum(1 - last, column);
  }
  apply_unit<T, true>(p, x, up);
  return from_acc<T>(x[0]);
}

// Walks the block's tiles. multiply(product, stored, expert, n0, row_of) puts the sums of the rows 0 … m - 1 of a tile, of
// which row_of(r) says where x has row r.
template <class T, int COLUMNS, class P, class Multiply>
BARACUDA_D void chosen_tiles(const P& p, const Multiply& multiply) {
  __shared__ Chunks chunks;
  __shared__ float sums[2 * decode_rows * COLUMNS];
  sort_slots(p, chunks);
  const Stored stored(p);
  const i64 half = p.gated ? p.n / 2 : p.n;
  const bool interleaved = p.gated && static_cast<HalvesOrder>(p.order) == HalvesOrder::interleaved;
  const int column_tiles = static_cast<int>(div_up(half, static_cast<i64>(COLUMNS)));
  T* const made = static_cast<T*>(p.made);
#pragma unroll 1
  for (int tile = static_cast<int>(blockIdx.x); tile < chunks.count * column_tiles;
       tile += static_cast<int>(gridDim.x)) {
    const int chunk = tile / column_tiles, begin = chunks.begin[chunk], rows = chunks.begin[chunk + 1] - begin;
    const i64 n0 = static_cast<i64>(tile % column_tiles) * COLUMNS, expert = chunks.of[chunk];
    const T* const bias = p.bias == nullptr ? nullptr : static_cast<const T*>(p.bias) + expert * p.bias_steps[0];
    const auto row_of = [&](int r) {
      const int slot = chunks.slot[begin + min(r, rows - 1)];
      return p.shared_rows ? slot / p.choices : slot;
    };
#pragma unroll 1
    for (int product = 0; product <= p.gated; ++product) {
      const i64 first = interleaved ? 2 * n0 + product * COLUMNS : n0 + product * half;
      if (first >= p.n) break;  // of interleaved rows the last tile may have one product
      const ChosenProduct<T> own{p.x,
                                 bias,
                                 p.x_steps,
                                 rows,
                                 p.n,
                                 p.k,
                                 p.bias_steps[1],
                                 p.chunk_bytes,
                                 first,
                                 sums + product * decode_rows * COLUMNS,
                                 COLUMNS};
      multiply(own, stored, expert, row_of);
      __syncthreads();
    }
    for (int e = static_cast<int>(threadIdx.x); e < rows * COLUMNS; e += static_cast<int>(blockDim.x)) {
      const int row = e / COLUMNS, column = e % COLUMNS;
      if (n0 + column >= half) continue;
      const i64 at = chunks.slot[begin + row] * p.made_steps[0] + (n0 + column) * p.made_steps[1];
      made[at] = unit_of<T, COLUMNS>(p, sums, row, column);
    }
    __syncthreads();
  }
  // Slots of no expert: zeros.
  const i64 all = static_cast<i64>(p.tokens) * p.choices * half, threads = static_cast<i64>(gridDim.x) * blockDim.x;
  for (i64 e = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x; e < all; e += threads) {
    const int slot = static_cast<int>(e / half);
    if (chunks.expert[slot] < 0) made[slot * p.made_steps[0] + e % half * p.made_steps[1]] = from_acc<T>(0.0f);
  }
}

}  // namespace moe

}  // namespace baracuda
