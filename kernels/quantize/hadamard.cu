// hadamard   y = after . scale H (signs . x) for every row, H a Hadamard matrix: a block transforms some rows in shared
// memory, one read and one write of global memory. See hadamard_tile.cuh for the order of its sums. WIDE: rows lie in
// aligned chunks of 16 bytes. raw: y is in the accumulator, a part of rows that hadamard_columns.cu goes on with.
#include "quantize/hadamard_tile.cuh"

namespace baracuda {

enum HadamardOperand { AT_RESULT, AT_SOURCE, AT_SIGNS, AT_AFTER };

template <class T, int E, int BASE, bool WIDE> struct HadamardResult {
  using Tile = hadamard::Tile<T, E, BASE, HadamardParams>;
  using A = acc_t<T>;
  static constexpr int V = Tile::V, C = Tile::C;
  const HadamardParams& p;
  const Tile& t;
  A scale;

  BARACUDA_D HadamardResult(const HadamardParams& params, const Tile& tile)
      : p(params), t(tile), scale(params.raw ? A(1) : static_cast<A>(params.scale() * params.unit)) {}

  BARACUDA_D void put_chunk(int i, const A* x) const {
    if (i >= t.valid) return;
    const int row = t.row_of(i), column = i - row * t.n;
    const i64 to = t.template row_offset<true>(AT_RESULT, row) + column;
    Vec<A, V> v;
#pragma unroll
    for (int k = 0; k < V; ++k) v[k] = x[k] * scale;
    if (p.after != nullptr) {
      const T* const after = static_cast<const T*>(p.after) + t.template row_offset<true>(AT_AFTER, row) + column;
      const auto s = to_acc(load<V>(after));
#pragma unroll
      for (int k = 0; k < V; ++k) v[k] *= s[k];
    }
    if (p.raw) store(static_cast<A*>(p.y) + to, v);
    else store<Access::streaming>(static_cast<T*>(p.y) + to, from_acc<T>(v));
  }
  BARACUDA_D void leave_wide() const {
    const int round = p.rounds - 1, shift = p.shift[round];
#pragma unroll 1
    for (int w = static_cast<int>(threadIdx.x); w < t.size / E; w += static_cast<int>(blockDim.x)) {
      const int place = t.chunk_place(w, shift);
      A x[E];
#pragma unroll
      for (int c = 0; c < C; ++c) t.get(place + (c << shift), x + c * V);
      t.chunk_levels(x, round);
#pragma unroll
      for (int c = 0; c < C; ++c) put_chunk(place + (c << shift), x + c * V);
    }
  }
  BARACUDA_D void leave_strided() const {
    t.chunk_round(p.rounds - 1);
    __syncthreads();
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < t.valid; i += static_cast<int>(blockDim.x)) {
      const int row = t.row_of(i), column = i - row * t.n;
      A x = t.tile[t.at(i)] * scale;
      if (p.after != nullptr) {
        const i64 from = t.template row_offset<false>(AT_AFTER, row) + column_offset<false>(p, AT_AFTER, column);
        x *= to_acc(static_cast<const T*>(p.after)[from]);
      }
      const i64 to = t.template row_offset<false>(AT_RESULT, row) + column_offset<false>(p, AT_RESULT, column);
      if (p.raw) static_cast<A*>(p.y)[to] = x;
      else static_cast<T*>(p.y)[to] = from_acc<T>(x);
    }
  }
};

template <class T, int E, int BASE, bool WIDE> BARACUDA_D void hadamard_tile(const HadamardParams& p) {
  const i64 row = hadamard::block_number() * p.tile_rows;
  if (row >= p.rows) return;
  const hadamard::Tile<T, E, BASE, HadamardParams> tile(p, dynamic_smem<acc_t<T>>(), row);
  tile.template enter<WIDE, AT_SOURCE, AT_SIGNS>();
  const HadamardResult<T, E, BASE, WIDE> result(p, tile);
  if constexpr (WIDE) result.leave_wide();
  else result.leave_strided();
}

}  // namespace baracuda
