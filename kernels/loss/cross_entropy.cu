// cross_entropy    loss = (1 - eps) w[t] nll + eps / C sum_c w[c] (lse - x[c]),   nll = lse - x[t]
//                  dlogits[c] = scale ((1 - eps) w[t] (p[c] - [c = t]) + eps / C (W p[c] - w[c]))
//
// cross_entropy_rows: a group of G threads holds a row in registers, K chunks a thread, R rows at once: one read.
// cross_entropy_long: a block for each row, maximum and sum online; for the gradient the row again, its first slabs
// from shared memory, the others from L2, the newest first. cross_entropy_cluster: the same by a cluster, of which each
// block has as many slabs, one after the other; parts are merged in the order of blocks. A row's loss is finished in
// double, as a difference from its maximum. The losses of a block are added as a tree, those of the blocks by `finish`, both in double; `finish`
// also adds up the rounding errors.
#include <baracuda/cluster.cuh>
#include "loss/cross_entropy_common.cuh"

namespace baracuda {

// What remains of a row once it has been read. nll = log(sum) + max - own logit.
template <class A> struct RowSums {
  A max, sum, spread;  // spread: sum of w[c] (x[c] - base)
  A logit, base, own;  // the target's logit and weight; base: that logit if it is finite, else 0
  i64 target;
};

template <class A> BARACUDA_D A base_of(A logit) { return math::isfinite(logit) ? logit : A(0); }

struct LossPair {
  double loss, weight;
};

// Writes the statistics and, without a reduction, the loss; returns the row's share of the loss and weight sums.
template <class T, int SMOOTH, class P>
BARACUDA_D LossPair finish_row(const P& p, i64 row, const RowSums<acc_t<T>>& r) {
  using A = acc_t<T>;
  const double high = r.max, log_sum = math::log(static_cast<double>(r.sum));
  LossPair out{0, 0};
  if (r.target != no_class) {
    const double own = r.own;
    out = {(1 - p.smoothing) * own * (log_sum + (high - r.logit)), own};
    if constexpr (SMOOTH != smooth_none) {
      const double above = all_weights(p) * (log_sum + (high - r.base));
      out.loss += p.smoothing / static_cast<double>(p.cols) * (above - r.spread);
    }
  }
  i64 at[5];
  row_offsets(p, row, at);
  if (p.per_row) static_cast<A*>(p.loss)[at[3]] = static_cast<A>(out.loss);
  if (p.lse != nullptr) static_cast<A*>(p.lse)[at[4]] = static_cast<A>(high + log_sum);
  if (p.stats != nullptr) static_cast<A*>(p.stats)[2 * row] = r.max, static_cast<A*>(p.stats)[2 * row + 1] = r.sum;
  return out;
}

// Sum of w[c] (x[c] - base) over a chunk.
template <class T, int SMOOTH, class P>
BARACUDA_D acc_t<T> smooth_sum(const P& p, const RowChunk<T>& x, i64 col, acc_t<T> base) {
  auto z = unpack_chunk(x);
  if constexpr (SMOOTH == smooth_weighted) {
    const auto w = chunk_weights<T>(p, col);
#pragma unroll
    for (int k = 0; k < row_vec<T>; ++k) z[k] = col + k < p.cols ? (z[k] - base) * w[k] : acc_t<T>(0);
  } else {
#pragma unroll
    for (int k = 0; k < row_vec<T>; ++k) z[k] = col + k < p.cols ? z[k] - base : acc_t<T>(0);
  }
  return tree_reduce<Sum>(z);
}

template <class T, int SMOOTH, class P>
BARACUDA_D RowChunk<T> gradient_chunk(const P& p, const RowChunk<T>& x, i64 col, i64 target, acc_t<T> max,
                                      acc_t<T> factor, const RowGradient<acc_t<T>>& row) {
  auto g = unpack_chunk(x);
#pragma unroll
  for (int k = 0; k < row_vec<T>; ++k) g[k] = row_exp<T>(g[k] - max) * factor;
  finish_gradient<T>(p, g, col, target, row, SMOOTH);
  return from_acc<T>(g);
}

// The coefficients for an upstream gradient of 1.
template <class A, int SMOOTH, class P> BARACUDA_D RowGradient<A> unit_gradient(const P& p, A own) {
  const A scale = p.mean ? A(1) / static_cast<A>(target_weight(p)) : A(1);
  return row_gradient(static_cast<A>(p.smoothing), p.cols, SMOOTH != smooth_none ? all_weights(p) : 0.0, own, scale);
}

// How many times a group of G threads takes R rows at most (`schedules/row_groups.py`).
constexpr int row_sets(int g, int r) { return g <= warp_size ? g / r : 1; }

// Rows first … first + R - 1 of a group, the first `valid` of which exist; `sums` takes what remains of each.
template <class T, int G, int K, int R, int MODE, int SMOOTH, class P>
BARACUDA_D void cross_entropy_group(const P& p, i64 first, int valid, RowSums<acc_t<T>>* sums) {
  using A = acc_t<T>;
  constexpr int V = row_vec<T>;
  const int lane = static_cast<int>(threadIdx.x) % G, cols = static_cast<int>(p.cols);
  const T low = cast<T>(-numeric<A>::infinity());
  auto column = [&](int r, int j) { return r < valid ? (j * G + lane) * V : cols; };

  const T* x[R];
  i64 named[R];
#pragma unroll
  for (int r = 0; r < R; ++r) {
    i64 at[5];
    row_offsets(p, first + r, at);
    x[r] = static_cast<const T*>(p.logits) + at[0];
    named[r] = r < valid ? read_target(p, at[2]) : p.ignore;
  }
  RowChunk<T> v[R][K];
#pragma unroll
  for (int r = 0; r < R; ++r) {
#pragma unroll
    for (int j = 0; j < K; ++j) read_chunk<MODE>(v[r][j], x[r], p.step[0], column(r, j), cols, low);
  }
  int target[R];
  A logit[R], own[R], max[R], sum[R], spread[R];
#pragma unroll
  for (int r = 0; r < R; ++r) {
    target[r] = static_cast<int>(class_of(p, named[r], p.status));
    logit[r] = target[r] == no_class ? A(0) : to_acc(x[r][target[r] * p.step[0]]);
    own[r] = target[r] == no_class ? A(0) : class_weight<T>(p, target[r]);
  }
#pragma unroll
  for (int r = 0; r < R; ++r) {
    max[r] = row_reduce<Max, G>(chunk_max<T>(v[r], [&](int j) { return column(r, j) < cols; }));
  }
#pragma unroll
  for (int r = 0; r < R; ++r) {
    sum[r] = spread[r] = 0;
#pragma unroll
    for (int j = 0; j < K; ++j) {
      if (column(r, j) >= cols) continue;
      auto e = unpack_chunk(v[r][j]);
#pragma unroll
      for (int k = 0; k < V; ++k) e[k] = row_exp<T>(e[k] - max[r]);
      sum[r] += tree_reduce<Sum>(e);
      if constexpr (SMOOTH != smooth_none) {
        spread[r] += smooth_sum<T, SMOOTH>(p, v[r][j], column(r, j), base_of(logit[r]));
      }
    }
  }
#pragma unroll
  for (int r = 0; r < R; ++r) {
    sum[r] = row_reduce<Sum, G>(sum[r]);
    if constexpr (SMOOTH != smooth_none) spread[r] = row_reduce<Sum, G>(spread[r]);
  }
  __syncwarp();  // every thread has read the target's logit: the gradient may overwrite it

  if (p.dlogits != nullptr) {
#pragma unroll
    for (int r = 0; r < R; ++r) {
      i64 at[5];
      row_offsets(p, first + r, at);
      T* const out = static_cast<T*>(p.dlogits) + at[1];
      const auto row = unit_gradient<A, SMOOTH>(p, own[r]);
      const A factor = row.spread / sum[r];
#pragma unroll
      for (int j = 0; j < K; ++j) {
        const int col = column(r, j);
        if (col >= cols) continue;
        forget(v[r][j]);
        write_chunk<MODE>(out, p.step[1], col, cols,
                          target[r] == no_class
                              ? filled(cast<T>(0.0f))
                              : gradient_chunk<T, SMOOTH>(p, v[r][j], col, target[r], max[r], factor, row));
      }
    }
  }

#pragma unroll
  for (int r = 0; r < R; ++r) {
    if (lane == r) sums[r] = {max[r], sum[r], spread[r], logit[r], base_of(logit[r]), own[r], target[r]};
  }
}

// The groups of a block take p.sets times R rows each; then a thread finishes each of the block's rows.
template <class T, int G, int K, int R, int MODE, int SMOOTH, class P> BARACUDA_D void cross_entropy_rows(const P& p) {
  constexpr int THREADS = group_block(G), groups = THREADS / G, most = groups * R * row_sets(G, R);
  static_assert(most <= THREADS, "a thread for each row");
  __shared__ RowSums<acc_t<T>> sums[most];
  const int group = static_cast<int>(threadIdx.x) / G;
  const i64 start = static_cast<i64>(blockIdx.x) * groups * R * p.sets;
  const int count = static_cast<int>(min<i64>(groups * R * p.sets, p.rows - start));
#pragma unroll 1
  for (int set = 0; set < p.sets; ++set) {
    const int row = (set * groups + group) * R;
    cross_entropy_group<T, G, K, R, MODE, SMOOTH>(p, start + row, count - row, sums + row);
  }
  __syncthreads();
  LossPair share{0, 0};
  if (static_cast<int>(threadIdx.x) < count) {
    share = finish_row<T, SMOOTH>(p, start + threadIdx.x, sums[threadIdx.x]);
  }
  if (p.keep_sums) {
    if constexpr (most > 1) {
      share.loss = block_reduce<Sum, THREADS>(share.loss);
      share.weight = block_reduce<Sum, THREADS>(share.weight);
    }
    if (threadIdx.x == 0) static_cast<LossPair*>(p.sums)[blockIdx.x] = share;
  }
}

// What a block of a cluster finds in its part of a row.
template <class A> struct RowPart {
  MaxSum<A> state;
  A spread;
};

// A block, or a cluster of so many, for each row.
template <class T, int MODE, int SMOOTH, int CLUSTER, class P> BARACUDA_D void cross_entropy_row(const P& p) {
  using A = acc_t<T>;
  constexpr int G = long_group, V = row_vec<T>;
  constexpr bool two = CLUSTER > 1 || SMOOTH == smooth_weighted || is_same<T, double>;
  constexpr int K = two ? long_chunks / 2 : long_chunks;
  BARACUDA_DYNAMIC_SMEM(RowChunk<T>, held);
  const int lane = threadIdx.x;
  const u32 rank = CLUSTER == 1 ? 0 : cluster_rank();
  const i64 row_number = blockIdx.x / CLUSTER;
  // The block's slabs begin at `skipped` of the row; its columns end at `cols`.
  const int all_slabs = static_cast<int>(div_up<i64>(p.cols, G * V)), each = div_up(all_slabs, CLUSTER),
            stage = p.stage;
  const int skipped = static_cast<int>(rank) * each, slabs = max(0, min(each, all_slabs - skipped));
  const i64 cols = CLUSTER == 1 ? p.cols : min<i64>(p.cols, static_cast<i64>(skipped + each) * G * V);
  i64 at[5];
  row_offsets(p, row_number, at);
  const T* x = static_cast<const T*>(p.logits) + at[0];
  const T low = cast<T>(-numeric<A>::infinity());
  auto column = [&](int slab) { return (static_cast<i64>(skipped + slab) * G + lane) * V; };

  const i64 target = class_of(p, read_target(p, at[2]), p.status);
  const bool counts = target != no_class;
  RowSums<A> r{A(0), A(1), A(0), A(0), A(0), A(0), target};
  if (counts) {
    r.logit = to_acc(x[target * p.step[0]]);
    r.own = class_weight<T>(p, target);
    r.base = base_of(r.logit);
  }
  if (counts || p.lse != nullptr || p.stats != nullptr) {  // of an ignored row nothing is computed
    OnlineRow<T> online;
    for (int start = 0; start < slabs; start += K) {
      const int first = forgotten(start);
      RowChunk<T> v[K];
#pragma unroll
      for (int j = 0; j < K; ++j) read_chunk<MODE>(v[j], x, p.step[0], column(first + j), cols, low);
#pragma unroll
      for (int j = 0; j < K; ++j) {
        if (first + j < stage) copy_chunk(held[(first + j) * G + lane], v[j]);
      }
      online.add(v, [&](int j) { return column(first + j) < cols; });
      if constexpr (SMOOTH != smooth_none) {
#pragma unroll
        for (int j = 0; j < K; ++j) {
          forget(v[j]);
          if (column(first + j) < cols) r.spread += smooth_sum<T, SMOOTH>(p, v[j], column(first + j), r.base);
        }
      }
    }
    MaxSum<A> all = block_reduce<LogSumExp, G>(online.state);
    if constexpr (SMOOTH != smooth_none) r.spread = block_reduce<Sum, G>(r.spread);
    if constexpr (CLUSTER > 1) {
      __shared__ RowPart<A> part;
      if (lane == 0) part = {all, r.spread};
      cluster_sync();
      const RowPart<A> first = read_remote(&part, 0);
      all = first.state, r.spread = first.spread;
#pragma unroll
      for (u32 n = 1; n < CLUSTER; ++n) {
        const RowPart<A> next = read_remote(&part, n);
        all = LogSumExp::apply(all, next.state), r.spread += next.spread;
      }
    }
    r.max = all.max, r.sum = all.max == -numeric<A>::infinity() ? numeric<A>::nan() : all.sum;
  }
  if (lane == 0 && rank == 0) {
    const LossPair share = finish_row<T, SMOOTH>(p, row_number, r);
    if (p.keep_sums) static_cast<LossPair*>(p.sums)[row_number] = share;
  }
  if (CLUSTER == 1 && p.dlogits == nullptr) return;

  row_offsets(p, row_number, at);
  T* const out = static_cast<T*>(p.dlogits) + at[1];
  const auto row = unit_gradient<A, SMOOTH>(p, r.own);
  const A factor = row.spread / r.sum;
  for (int start = (slabs - 1) / K * K; start >= 0; start -= K) {
    const int first = forgotten(start);
    RowChunk<T> v[K];
#pragma unroll
    for (int j = 0; j < K; ++j) {
      if (!counts) copy_chunk(v[j], filled(low));
      else if (first + j < stage) copy_chunk(v[j], held[(first + j) * G + lane]);
      else read_chunk<MODE>(v[j], x, p.step[0], column(first + j), cols, low);
    }
#pragma unroll
    for (int j = 0; j < K; ++j) {
      const i64 col = column(first + j);
      if (col >= cols) continue;
      write_chunk<MODE>(
          out, p.step[1], col, cols,
          !counts ? filled(cast<T>(0.0f)) : gradient_chunk<T, SMOOTH>(p, v[j], col, target, r.max, factor, row));
    }
  }
  if constexpr (CLUSTER > 1) cluster_sync();  // else a block could end before others have read its part
}

template <class T, int MODE, int SMOOTH, class P> BARACUDA_D void cross_entropy_long(const P& p) {
  cross_entropy_row<T, MODE, SMOOTH, 1>(p);
}
template <class T, int MODE, int SMOOTH, class P> BARACUDA_D void cross_entropy_cluster(const P& p) {
  cross_entropy_row<T, MODE, SMOOTH, 4>(p);
}

// A sum and the sum of its rounding errors (Knuth's two-sum); not finite once a term is not.
struct Compensated {
  double high, low;
  BARACUDA_D double value() const { return math::isfinite(high) ? high + low : high; }
};
struct CompensatedSum {
  static constexpr bool symmetric = true;
  static BARACUDA_D Compensated apply(Compensated a, Compensated b) {
    const double sum = a.high + b.high, part = sum - a.high;
    return {sum, a.low + b.low + ((a.high - (sum - part)) + (b.high - part))};
  }
};

// Adds the pairs of tile blockIdx.x to out[blockIdx.x]; the last level writes the results instead. 1024 threads.
template <class T, class P> BARACUDA_D void cross_entropy_finish(const P& p) {
  using A = acc_t<T>;
  constexpr int THREADS = 1024;
  const LossPair* pairs = static_cast<const LossPair*>(p.sums);
  const i64 start = static_cast<i64>(blockIdx.x) * p.tile, end = min(start + p.tile, p.count);
  Compensated loss{0, 0}, weight{0, 0};
  for (i64 i = start + threadIdx.x; i < end; i += THREADS) {
    loss = CompensatedSum::apply(loss, {pairs[i].loss, 0});
    weight = CompensatedSum::apply(weight, {pairs[i].weight, 0});
  }
  const double total = block_reduce<CompensatedSum, THREADS>(loss).value();
  const double weights = block_reduce<CompensatedSum, THREADS>(weight).value();
  if (threadIdx.x != 0) return;
  if (!p.last) {
    static_cast<LossPair*>(p.out)[blockIdx.x] = {total, weights};
    return;
  }
  if (p.reduced) *static_cast<A*>(p.loss) = static_cast<A>(p.mean ? total / weights : total);
  if (p.total_weight != nullptr) *static_cast<A*>(p.total_weight) = static_cast<A>(weights);
}

}  // namespace baracuda
