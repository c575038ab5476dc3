// cross_entropy_backward    dlogits[c] = g ((1 - eps) w[t] (p[c] - [c = t]) + eps / C (W p[c] - w[c])),
//                           p = exp(x - max) / sum
// Elementwise, given a row's max and sum: each group of G threads takes R rows, or one of `segments` parts of a long
// row.
#include "loss/cross_entropy_common.cuh"

namespace baracuda {

template <class T, int G, int K, int R, int MODE, class P> BARACUDA_D void cross_entropy_backward(const P& p) {
  using A = acc_t<T>;
  constexpr int V = row_vec<T>, groups = group_block(G) / G;
  const int lane = static_cast<int>(threadIdx.x) % G, group = static_cast<int>(threadIdx.x) / G;
  const i64 segment = static_cast<i64>(blockIdx.x) % p.segments, cols = p.cols;
  const i64 first = (static_cast<i64>(blockIdx.x) / p.segments * groups + group) * R;
  const int valid = static_cast<int>(max<i64>(0, min<i64>(R, p.rows - first)));
  auto column = [&](int r, int j) { return r < valid ? ((segment * K + j) * G + lane) * V : cols; };

  RowChunk<T> v[R][K];
  i64 target[R];
  A max[R], sum[R], up[R];
#pragma unroll
  for (int r = 0; r < R; ++r) {
    i64 at[4];
    const i64 row = r < valid ? first + r : 0;
    row_offsets(p, row, at);
    const T* x = static_cast<const T*>(p.logits) + at[0];
    target[r] = read_target(p, at[2]);
    up[r] = static_cast<const A*>(p.dloss)[at[3]];
    max[r] = static_cast<const A*>(p.stats)[2 * row];
    sum[r] = static_cast<const A*>(p.stats)[2 * row + 1];
#pragma unroll
    for (int j = 0; j < K; ++j) read_chunk<MODE>(v[r][j], x, p.step[0], column(r, j), cols, cast<T>(0.0f));
  }
  A share = A(1);
  if (p.mean) {
    share = p.total_weight == nullptr ? static_cast<A>(target_weight(p)) : *static_cast<const A*>(p.total_weight);
  }
  const int smooth = p.smoothing == 0 ? smooth_none : p.weight == nullptr ? smooth_plain : smooth_weighted;
  const double weights = smooth != smooth_none ? all_weights(p) : 0.0;
#pragma unroll
  for (int r = 0; r < R; ++r) {
    target[r] = class_of(p, target[r], p.status);
    const A own = target[r] == no_class ? A(0) : class_weight<T>(p, target[r]);
    const auto row = row_gradient(static_cast<A>(p.smoothing), cols, weights, own, p.mean ? up[r] / share : up[r]);
    const A factor = row.spread / sum[r];
    i64 at[4];
    row_offsets(p, first + r, at);
    T* const out = static_cast<T*>(p.dlogits) + at[1];
#pragma unroll
    for (int j = 0; j < K; ++j) {
      const i64 col = column(r, j);
      if (col >= cols) continue;
      RowChunk<T> grad = filled(cast<T>(0.0f));
      if (target[r] != no_class) {
        auto g = unpack_chunk(v[r][j]);
#pragma unroll
        for (int k = 0; k < V; ++k) g[k] = row_exp<T>(g[k] - max[r]) * factor;
        finish_gradient<T>(p, g, col, target[r], row, smooth);
        grad = from_acc<T>(g);
      }
      write_chunk<MODE>(out, p.step[1], col, cols, grad);
    }
  }
}

}  // namespace baracuda
