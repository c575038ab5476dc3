// rnnt_loss    loss[n] = -log of the sum over all paths through (t, u) of the product of their probabilities.
//
// alpha[t, u] = log_sum(alpha[t - 1, u] + log p[t - 1, u, blank], alpha[t, u - 1] + log p[t, u - 1, label u - 1])
// (Graves 2012, Sequence Transduction with Recurrent Neural Networks). rnnt_rows: a warp for each position reads its
// logits once, maximum and sum of exponentials online, a lane its chunks in order and then the lanes as a tree, and leaves
// the two logarithms that paths need. rnnt_alpha: a block for each sequence walks the diagonals t + u, a thread for some
// u; two diagonals are in shared memory, or in the workspace where they do not fit. Classes alone fix the order of a row's
// sum. The losses are added by the schedule reduce.
#include "loss/rnnt.cuh"
#include "loss/loss_shares.cuh"

namespace baracuda {

template <class T, bool WIDE, class P> BARACUDA_D acc_t<T> rnnt_log_sum_exp(const P& p, const T* row) {
  using A = acc_t<T>;
  constexpr int V = vec_elems<T>;
  const A none = -numeric<A>::infinity();
  MaxSum<A> s{none, A(0)};
  rnnt_chunks<T, WIDE>(p, row, [&](i64, const Vec<A, V>& x, i64 left) {
    A top = s.max, sum = A(0);
#pragma unroll
    for (int k = 0; k < V; ++k) top = k < left ? math::maximum(top, x[k]) : top;
    const A zero = top == none ? A(0) : top;
#pragma unroll
    for (int k = 0; k < V; ++k) sum += k < left ? math::exp(x[k] - zero) : A(0);
    s = {top, s.sum * math::exp(s.max - zero) + sum};
  });
  s = warp_reduce<LogSumExp>(s);
  return s.max + math::log(s.sum);
}

template <class T, bool WIDE> BARACUDA_D void rnnt_rows(const RnntRowsParams& p) {
  using A = acc_t<T>;
  const i64 r =
      (static_cast<i64>(blockIdx.y) * gridDim.x + blockIdx.x) * (rnnt_threads / warp_size) + threadIdx.x / warp_size;
  if (r >= p.rows) return;
  const RnntRow<RnntRowsParams> position(p, r);
  A* const steps = static_cast<A*>(p.log_steps) + 2 * r;
  A* const kept = p.lse == nullptr ? nullptr : static_cast<A*>(p.lse) + r;
  if (!position.exists()) {
    if (lane_id() != 0) return;
    steps[0] = steps[1] = -numeric<A>::infinity();
    if (kept != nullptr) *kept = A(0);
    return;
  }
  i64 at[1];
  row_offsets<1>(p, r, at);
  const T* const x = static_cast<const T*>(p.logits) + at[0];
  const A lse = p.fused ? rnnt_log_sum_exp<T, WIDE>(p, x) : A(0);
  if (lane_id() > 1) return;
  const i64 c = lane_id() == 0 ? p.blank : position.label();
  const bool there = c >= 0 && c < p.cols;
  steps[lane_id()] = there ? to_acc(x[column_offset<WIDE>(p, 0, c)]) - lse : -numeric<A>::infinity();
  if (lane_id() == 0 && kept != nullptr) *kept = lse;
}

template <class T> BARACUDA_D void rnnt_alpha(const RnntAlphaParams& p) {
  using A = acc_t<T>;
  BARACUDA_DYNAMIC_SMEM(A, held);
  const i64 n = blockIdx.x, own = threadIdx.x;
  const Rnnt<RnntAlphaParams> item(p, n);
  const A none = -numeric<A>::infinity();
  A* const rows = p.staged ? held : static_cast<A*>(p.diagonals) + n * 2 * p.positions;
  A* const kept = static_cast<A*>(p.log_alpha);
  const A* const steps = static_cast<const A*>(p.log_steps);
  const auto from_below = [&](i64 t, i64 u) {
    return item.has(t - 1, u) && t < item.steps ? steps[2 * item.at(t - 1, u)] : none;
  };
  const auto from_left = [&](i64 t, i64 u) {
    return item.has(t, u - 1) && u <= item.labels ? steps[2 * item.at(t, u - 1) + 1] : none;
  };
  const i64 diagonals = item.steps == 0 ? 0 : item.steps + item.labels;
  A blank = none, label = none;  // into the thread's first position of the next diagonal, on their way meanwhile
  for (i64 d = 0; d < diagonals; ++d) {
    const A* const before = rows + (d + 1) % 2 * p.positions;
    A* const now = rows + d % 2 * p.positions;
    for (i64 u = own; u <= item.labels; u += rnnt_threads) {
      const i64 t = d - u;
      if (!item.has(t, u)) continue;
      const A b = u == own ? blank : from_below(t, u), l = u == own ? label : from_left(t, u);
      const A made = d == 0 ? A(0) : log_sum(t > 0 ? before[u] + b : none, u > 0 ? before[u - 1] + l : none);
      now[u] = made;
      if (kept != nullptr) kept[item.at(t, u)] = made;
    }
    blank = from_below(d + 1 - own, own), label = from_left(d + 1 - own, own);
    __syncthreads();
  }
  if (kept != nullptr) {
    for (i64 t = 0; t < p.steps; ++t) {
      for (i64 u = own + (t < item.steps ? item.labels + 1 : 0); u < p.positions; u += rnnt_threads)
        kept[item.at(t, u)] = none;
    }
  }
  if (own != 0) return;
  A loss = item.labels == 0 ? A(0) : numeric<A>::infinity();  // of no steps
  if (diagonals > 0) {
    const A* const last = rows + (diagonals - 1) % 2 * p.positions;
    loss = -(last[item.labels] + steps[2 * item.at(item.steps - 1, item.labels)]);
  }
  if (p.nll != nullptr) static_cast<A*>(p.nll)[n * p.nll_step] = loss;
  if (p.loss != nullptr) static_cast<T*>(p.loss)[n * p.loss_step] = cast<T>(loss);
  if (p.keep) static_cast<A*>(p.shares)[n] = loss;
}

}  // namespace baracuda
