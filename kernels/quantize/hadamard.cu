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

  BARACUDA_D void leave_wide() const {
    const int shift = p.shift[Tile::last];
#pragma unroll 1
    for (int w = static_cast<int>(threadIdx.x); w < t.size / E; w += static_cast<int>(blockDim.x)) {
      const int place = t.chunk_place(w, shift);
      A x[E];
      t.last_round(place, x);
#pragma unroll
      for (int i = 0; i < E; ++i) x[i] *= scale;
      i64 to[C];
      if (p.after != nullptr) {
        t.chunk_offsets(AT_AFTER, place, shift, to);
#pragma unroll
        for (int c = 0; c < C; ++c) {
          if (place + (c << shift) >= t.valid) continue;
          const auto s = to_acc(load<V>(static_cast<const T*>(p.after) + to[c]));
#pragma unroll
          for (int k = 0; k < V; ++k) x[c * V + k] *= s[k];
        }
      }
      t.chunk_offsets(AT_RESULT, place, shift, to);
#pragma unroll
      for (int c = 0; c < C; ++c) {
        if (place + (c << shift) >= t.valid) continue;
        Vec<A, V> v;
#pragma unroll
        for (int k = 0; k < V; ++k) v[k] = x[c * V + k];
        if (p.raw) store(static_cast<A*>(p.y) + to[c], v);
        else store<Access::streaming>(static_cast<T*>(p.y) + to[c], from_acc<T>(v));
      }
    }
  }
  BARACUDA_D void leave_strided() const {
    t.template chunk_round<Tile::last>();
    __syncthreads();
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < t.valid; i += static_cast<int>(blockDim.x)) {
      const int row = t.row_of(i), column = i - row * t.n;
      A x = t.tile[t.at(i)] * scale;
      if (p.after != nullptr) {
        x *= to_acc(static_cast<const T*>(p.after)[t.offset(AT_AFTER, row, column)]);
      }
      const i64 to = t.offset(AT_RESULT, row, column);
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
