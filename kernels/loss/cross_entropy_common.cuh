#pragma once
// cross_entropy_common what forward and backward share: targets, coefficients of the gradient, sums of weights.
#include "softmax/row_groups.cuh"

namespace baracuda {

constexpr i64 no_class = -1;  // the class of a row that is ignored

template <class P> BARACUDA_D i64 read_target(const P& p, i64 offset) {
  return p.wide_targets ? static_cast<const i64*>(p.targets)[offset] : static_cast<const i32*>(p.targets)[offset];
}

// ignore_index and any target that is no class are ignored; the latter set the status of a checked run.
template <class P> BARACUDA_D i64 class_of(const P& p, i64 target, u32* status) {
  if (target == p.ignore) return no_class;
  if (target >= 0 && target < p.cols) return target;
  if (status != nullptr) atomicOr(status, 1u);
  return no_class;
}

template <class T, class P> BARACUDA_D acc_t<T> class_weight(const P& p, i64 c) {
  if (p.weight == nullptr) return acc_t<T>(1);
  return to_acc(static_cast<const T*>(p.weight)[c * p.weight_step]);
}

// Weights of the classes of a chunk.
template <class T, class P> BARACUDA_D Vec<acc_t<T>, row_vec<T>> chunk_weights(const P& p, i64 col) {
  constexpr int V = row_vec<T>;
  const T* weight = static_cast<const T*>(p.weight);
  if (p.wide_weight && p.cols - col >= V) return to_acc(load<V>(weight + col));
  return to_acc(load_strided<T, V>(weight + col * p.weight_step, p.weight_step, p.cols - col));
}

// The sum of w[t] over the rows that count, and the sum of all weights, as `prepare` wrote them.
template <class P> BARACUDA_D double target_weight(const P& p) {
  const double* parts = static_cast<const double*>(p.prepared);
  double sum = 0;
#pragma unroll 1
  for (i64 i = 0; i < p.parts; ++i) sum += parts[i];
  return sum;
}
enum Smoothing { smooth_none = 0, smooth_plain = 1, smooth_weighted = 2 };

template <class P> BARACUDA_D double all_weights(const P& p) {
  return p.weight == nullptr ? static_cast<double>(p.cols) : static_cast<const double*>(p.prepared)[p.parts];
}

// dlogit[c] = probability[c] * spread - onehot[c] * hit - smooth * w[c]
template <class A> struct RowGradient {
  A spread, hit, smooth;
};

// `scale` is the upstream gradient over the mean's denominator.
template <class A> BARACUDA_D RowGradient<A> row_gradient(A smoothing, i64 cols, double weights, A own, A scale) {
  const A hit = (A(1) - smoothing) * own;
  const A each = smoothing / static_cast<A>(cols);
  if (smoothing == A(0)) return {hit * scale, hit * scale, A(0)};
  return {(hit + each * static_cast<A>(weights)) * scale, hit * scale, each * scale};
}

// Completes a chunk of dlogits from g, probabilities times spread; target: the row's class, `smooth` one of Smoothing.
template <class T, class P>
BARACUDA_D void finish_gradient(const P& p, Vec<acc_t<T>, row_vec<T>>& g, i64 col, i64 target,
                                const RowGradient<acc_t<T>>& row, int smooth) {
  constexpr int V = row_vec<T>;
  if (target >= col && target < col + V) {
    const int at = static_cast<int>(target - col);
#pragma unroll
    for (int k = 0; k < V; ++k) {
      if (at == k) g[k] -= row.hit;
    }
  }
  if (smooth == smooth_plain) {
#pragma unroll
    for (int k = 0; k < V; ++k) g[k] -= row.smooth;
  } else if (smooth == smooth_weighted) {
    const auto w = chunk_weights<T>(p, col);
#pragma unroll
    for (int k = 0; k < V; ++k) g[k] = math::fma(-row.smooth, w[k], g[k]);
  }
}

// out[b] = sum of w[t] over the targets of part b; the block after the last part: out[parts] = sum of all weights. 1024
// threads.
template <class T, class P> BARACUDA_D void cross_entropy_prepare(const P& p) {
  constexpr int THREADS = 1024;
  double sum = 0;
  if (static_cast<i64>(blockIdx.x) < p.parts) {
    const i64 start = static_cast<i64>(blockIdx.x) * p.tile, end = min(start + p.tile, p.rows);
#pragma unroll 4
    for (i64 row = start + threadIdx.x; row < end; row += THREADS) {
      i64 at[1];
      row_offsets(p, row, at);
      const i64 t = class_of(p, read_target(p, at[0]), nullptr);
      if (t != no_class) sum += class_weight<T>(p, t);
    }
  } else {
    for (i64 c = threadIdx.x; c < p.cols; c += THREADS) sum += class_weight<T>(p, c);
  }
  sum = block_reduce<Sum, THREADS>(sum);
  if (threadIdx.x == 0) static_cast<double*>(p.out)[blockIdx.x] = sum;
}

}  // namespace baracuda
