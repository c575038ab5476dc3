// row_slopes    gradients of the softmax family from the saved result, times `scale` (or over it, where `divide` says so).
//
//   softmax     dx = y (dy - sum(y dy))               log       dx = dy - exp(y) sum(dy)
//               both 0 where the mask leaves out, whatever the row's sum is
//   sparsemax   dx = w (dy - sum(w dy) / sum(w)), w = [y > 0]     entmax15  the same with w = sqrt(y)
//
// slopes_rows: a group of G threads holds a row in registers, K chunks a thread. slopes_long: a block for each row, which
// it reads twice. Sums are a tree within a chunk, in order over a thread's chunks, then a tree over the threads.
#include "softmax/terms.cuh"

namespace baracuda {

enum SlopeRule { slope_softmax = 0, slope_log = 1, slope_sparsemax = 2, slope_entmax15 = 3 };

template <class A> struct SlopeSums {
  A weighted, weights;
};
struct AddSlopes {
  static constexpr bool symmetric = true;
  template <class A> static BARACUDA_D SlopeSums<A> apply(SlopeSums<A> a, SlopeSums<A> b) {
    return {a.weighted + b.weighted, a.weights + b.weights};
  }
};

template <class T, class OUT, int RULE, bool WHOLE> struct Slopes {
  using A = acc_t<T>;
  static constexpr int V = row_vec<T>;
  const RowSlopeParams& p;
  const OUT *dy, *y;
  T* dx;
  const u8* mask;
  i64 end;  // of a causal row's columns
  A scale;

  BARACUDA_D Slopes(const RowSlopeParams& p, i64 row) : p(p), scale(static_cast<A>(p.scale())) {
    i64 at[5];
    row_offsets(p, row, at);
    dy = static_cast<const OUT*>(p.dy) + at[0];
    y = static_cast<const OUT*>(p.y) + at[1];
    dx = static_cast<T*>(p.dx) + at[2];
    mask = p.mask == nullptr ? nullptr : static_cast<const u8*>(p.mask) + at[3];
    end = p.causal ? at[4] + p.diagonal + 1 : p.cols;
    if (p.divide) scale = A(1) / scale;
  }

  BARACUDA_D A weight(A out) const {  // NaN stays NaN
    if constexpr (RULE == slope_softmax) return out;
    else if constexpr (RULE == slope_sparsemax) return out > A(0) ? A(1) : out;
    else return RULE == slope_log ? A(1) : math::sqrt(out);
  }

  struct Raw {
    Vec<OUT, V> grad, out;
  };
  BARACUDA_D Raw read(i64 col) const {
    const i64 left = p.cols - col;
    Raw raw;
    read_columns<WHOLE>(raw.grad, dy, p.step[0], col, left, p.wide & 1);
    read_columns<WHOLE>(raw.out, y, p.step[1], col, left, p.wide & 2);
    return raw;
  }
  BARACUDA_D SlopeSums<A> sums(i64 col, const Raw& raw) const {
    const auto grad = unpacked(raw.grad), out = unpacked(raw.out);
    const int count = columns_before<WHOLE, V>(p.cols, col);
    Vec<A, V> w, product;
#pragma unroll
    for (int k = 0; k < V; ++k) {
      w[k] = k < count ? weight(out[k]) : A(0);
      product[k] = w[k] * grad[k];
    }
    return {tree_reduce<Sum>(product), tree_reduce<Sum>(w)};
  }
  BARACUDA_D A common(const SlopeSums<A>& s) const {
    return RULE >= slope_sparsemax ? s.weighted / s.weights : s.weighted;
  }
  BARACUDA_D void put(i64 col, const Raw& raw, A shared) const {
    const i64 left = p.cols - col;
    auto grad = unpacked(raw.grad);
    const auto out = unpacked(raw.out);
    if constexpr (RULE == slope_log) {
#pragma unroll
      for (int k = 0; k < V; ++k) grad[k] = (grad[k] - math::exp(out[k]) * shared) * scale;
    } else {
#pragma unroll
      for (int k = 0; k < V; ++k) grad[k] = weight(out[k]) * (grad[k] - shared) * scale;
    }
    // A weight of 0 leaves out the rest, but in a row whose sum is no number: only there is the mask read.
    if (RULE == slope_log || !math::isfinite(shared)) {
      if (mask != nullptr) {
        Vec<u8, V> kept;
        read_columns<WHOLE>(kept, mask, p.step[3], col, left, p.wide & 8);
#pragma unroll
        for (int k = 0; k < V; ++k) grad[k] = byte_of(kept, k) ? grad[k] : A(0);
      }
      if (p.causal) {
        const int count = columns_before<false, V>(end, col);
#pragma unroll
        for (int k = 0; k < V; ++k) grad[k] = k < count ? grad[k] : A(0);
      }
    }
    write_columns<WHOLE>(dx, p.step[2], col, left, p.wide & 4, from_acc<T>(grad));
  }
};

template <class T, class OUT, int RULE, bool WHOLE, int G, int K> BARACUDA_D void slopes_rows(const RowSlopeParams& p) {
  using A = acc_t<T>;
  constexpr int V = row_vec<T>, groups = group_block(G) / G;
  const int lane = static_cast<int>(threadIdx.x) % G, group = static_cast<int>(threadIdx.x) / G;
  const i64 row = static_cast<i64>(blockIdx.x) * groups + group, cols = p.cols;
  const bool valid = row < p.rows;
  const Slopes<T, OUT, RULE, WHOLE> slopes(p, valid ? row : 0);
  auto column = [&](int j) { return valid ? static_cast<i64>(j * G + lane) * V : cols; };

  typename Slopes<T, OUT, RULE, WHOLE>::Raw raw[K];
#pragma unroll
  for (int j = 0; j < K; ++j) raw[j] = slopes.read(column(j));
  SlopeSums<A> sum{A(0), A(0)};
#pragma unroll
  for (int j = 0; j < K; ++j) sum = AddSlopes::apply(sum, slopes.sums(column(j), raw[j]));
  const A shared = slopes.common(row_reduce<AddSlopes, G>(sum));
#pragma unroll
  for (int j = 0; j < K; ++j) {
    forget(raw[j].grad), forget(raw[j].out);
    if (column(j) < cols) slopes.put(column(j), raw[j], shared);
  }
}

template <class T, class OUT, int RULE, bool WHOLE> BARACUDA_D void slopes_long(const RowSlopeParams& p) {
  using A = acc_t<T>;
  constexpr int G = long_group, K = 2, V = row_vec<T>;
  const i64 cols = p.cols;
  const Slopes<T, OUT, RULE, WHOLE> slopes(p, blockIdx.x);
  const int slabs = static_cast<int>(div_up<i64>(cols, G * V));
  auto column = [&](int slab) { return (static_cast<i64>(slab) * G + threadIdx.x) * V; };

  SlopeSums<A> sum{A(0), A(0)};
#pragma unroll 1
  for (int start = 0; start < slabs; start += K) {
    typename Slopes<T, OUT, RULE, WHOLE>::Raw raw[K];
#pragma unroll
    for (int j = 0; j < K; ++j) raw[j] = slopes.read(column(start + j));
#pragma unroll
    for (int j = 0; j < K; ++j) sum = AddSlopes::apply(sum, slopes.sums(column(start + j), raw[j]));
  }
  const A shared = slopes.common(block_reduce<AddSlopes, G>(sum));
#pragma unroll 1
  for (int slab = slabs - 1; slab >= 0; --slab) {  // the newest first, which L2 still has
    if (column(slab) < cols) slopes.put(column(slab), slopes.read(column(slab)), shared);
  }
}

}  // namespace baracuda
