// trapezoid_rows  the sum of (y[i] + y[i + 1]) / 2 times a step along rows of aligned chunks; schedule reduce.
//
// The tree and the areas of trapezoid.cu, to the bit: a chunk is one access and the element behind it, where two views
// of y, one element apart, are never aligned together.
#include <baracuda/reduce_axes.cuh>
#include "reduce/sums.cuh"

namespace baracuda {

// A source of baracuda/reduce_source.cuh whose operand is the low ends of the panels.
template <class T> struct PanelRow {
  static constexpr int operands = 1, width = vec_elems<T>, batch = 4;
  using Value = acc_t<T>;
  template <int N> struct Chunk {
    Vec<T, N> low;
    T behind;
  };
  const T* row;
  Value half;

  BARACUDA_D PanelRow(const TrapezoidRowsParams& p, const i64* at)
      : row(static_cast<const T*>(p.low) + at[0]), half(static_cast<Value>(p.spacing() * 0.5)) {}

  template <int N, bool LINE, class P> BARACUDA_D Chunk<N> whole(const P&, i64 r) const {
    return {load<N>(row + r), row[r + N]};
  }
  template <bool WIDE, class P, class V> BARACUDA_D Chunk<width> read(const P&, i64 r, i64 left, V) const {
    static_assert(WIDE, "other rows are a map of two views");
    if (left >= width) return {load<width>(row + r), row[r + width]};
    return {load_strided<T, width>(row + r, 1, left + 1), T{}};
  }
  template <class V> BARACUDA_D Vec<Value, width> values(const Chunk<width>& x, i64 left, V fill) const {
    Vec<Value, width> out;
#pragma unroll
    for (int k = 0; k < width; ++k) {
      const T high = k + 1 < width ? x.low[k + 1] : x.behind;
      out[k] = k < left ? (to_acc(x.low[k]) + to_acc(high)) * half : cast<Value>(fill);
    }
    return out;
  }
};

}  // namespace baracuda
