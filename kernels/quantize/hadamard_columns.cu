// hadamard_columns   combines rows that were transformed by parts, in the accumulator in the workspace: of RADIX numbers
// 2^shift apart either levels of Sylvester's matrix (RADIX 16) or the product with that of 12, 20 or 28.
//
// A thread has RADIX chunks of 16 bytes. Levels follow one another from the lowest bit of a place up, the matrix of RADIX
// comes last, and so the order of sums is fixed by the number of columns. WIDE: rows of y lie in chunks of as many numbers.
#include "quantize/hadamard_tile.cuh"

namespace baracuda {

template <class T, int RADIX, bool WIDE> struct HadamardColumns {
  using A = acc_t<T>;
  static constexpr int V = vec_elems<A>, LV = hadamard::log2_of(V);
  const HadamardColumnsParams& p;

  // The first of RADIX chunks of V numbers, and how far apart they are.
  BARACUDA_D i64 place(i64 w) const {
    const int above = RADIX == 16 ? 4 : 0;
    const i64 low = w & ((i64(1) << (p.shift - LV)) - 1);
    return w >> (p.shift - LV) << (p.shift + above) | low << LV;
  }
  BARACUDA_D void put(i64 row, i64 column, const Vec<A, V>& x, A scale) const {
    const T* const after = static_cast<const T*>(p.after);
    Vec<A, V> v;
#pragma unroll
    for (int k = 0; k < V; ++k) v[k] = x[k] * scale;
    if constexpr (WIDE) {
      if (after != nullptr) {
        const auto s = to_acc(load<V>(after + hadamard::row_start<true>(p, 1, row) + column));
#pragma unroll
        for (int k = 0; k < V; ++k) v[k] *= s[k];
      }
      store(static_cast<T*>(p.y) + hadamard::row_start<true>(p, 0, row) + column, from_acc<T>(v));
    } else {
      T* const y = static_cast<T*>(p.y) + hadamard::row_start<false>(p, 0, row);
      const i64 from = after == nullptr ? 0 : hadamard::row_start<false>(p, 1, row);
#pragma unroll
      for (int k = 0; k < V; ++k) {
        if (after != nullptr) v[k] *= to_acc(after[from + (column + k) * p.inner[1][0]]);
        y[(column + k) * p.inner[0][0]] = from_acc<T>(v[k]);
      }
    }
  }
  BARACUDA_D void item(i64 w) const {
    const i64 row = w / p.items, first = place(w - row * p.items), step = i64(1) << p.shift;
    A* const held = static_cast<A*>(p.held) + row * p.cols;
    Vec<A, V> x[RADIX];
#pragma unroll
    for (int r = 0; r < RADIX; ++r) x[r] = load<V>(static_cast<const A*>(held) + first + r * step);
#pragma unroll
    for (int k = 0; k < V; ++k) {
      A column[RADIX];
#pragma unroll
      for (int r = 0; r < RADIX; ++r) column[r] = x[r][k];
      if constexpr (RADIX == 16) hadamard::levels<1, 4>(column, p.low - p.shift, p.high - p.shift);
      else hadamard::multiply<RADIX>(column);
#pragma unroll
      for (int r = 0; r < RADIX; ++r) x[r][k] = column[r];
    }
    const A scale = static_cast<A>(p.scale() * p.unit);
#pragma unroll
    for (int r = 0; r < RADIX; ++r) {
      if (p.raw) store(held + first + r * step, x[r]);
      else put(row, first + r * step, x[r], scale);
    }
  }
};

template <class T, int RADIX, bool WIDE> BARACUDA_D void hadamard_columns(const HadamardColumnsParams& p) {
  const i64 w = hadamard::block_number() * blockDim.x + threadIdx.x;
  if (w < p.rows * p.items) HadamardColumns<T, RADIX, WIDE>{p}.item(w);
}

}  // namespace baracuda
